"""Items crossed with draws: spread, Crawford-Howell, crossed bootstrap, stability of the rank p."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol import statistics as st


def test_z_uses_individual_draws() -> None:
    found = st.control_spread(1.0, [0.0, 0.1, 0.2])
    assert float(found.mean) == pytest.approx(0.1)
    assert float(found.sd) == pytest.approx(0.1)
    assert float(found.z) == pytest.approx(9.0)
    assert float(found.t) == pytest.approx(9 / math.sqrt(1 + 1 / 3))
    assert float(found.p) == pytest.approx(stats.t.sf(9 / math.sqrt(4 / 3), 2))


def test_crawford_howell_has_its_level() -> None:
    rng = np.random.default_rng(1)
    null = rng.normal(size=(4_000, 21))
    p = st.control_spread(null[:, 0], null[:, 1:]).p
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / 4_000))


@pytest.mark.parametrize(("controls", "known"), [([], False), ([0.2], True), ([0.2, 0.2], True)])
def test_no_scale_no_z(controls: list[float], known: bool) -> None:
    found = st.control_spread(1.0, controls)
    assert math.isnan(float(found.z))
    assert math.isnan(float(found.mean)) is not known


def test_variance_components_of_a_planted_table() -> None:
    rng = np.random.default_rng(2)
    table = rng.normal(size=(400, 1)) + 0.2 * rng.normal(size=(1, 300)) + 0.5 * rng.normal(size=(400, 300))
    found = st.variance_components(table)
    assert math.sqrt(found.draw) == pytest.approx(0.2, rel=0.12)
    assert math.sqrt(found.residual) == pytest.approx(0.5, rel=0.02)


def test_sd_of_draw_means_holds_item_noise() -> None:
    """Control sets that do not differ: the SD of their means is s_e / sqrt(N), the component between sets near 0."""
    table = np.random.default_rng(3).normal(size=(100, 200))
    assert table.mean(axis=0).std(ddof=1) == pytest.approx(0.1, rel=0.15)
    assert math.sqrt(st.variance_components(table).draw) < 0.05


def _worlds(seed: int, count: int, n: int = 60, r: int = 20) -> list[tuple[np.ndarray, np.ndarray]]:
    """A set and its controls with true difference 0 from the control population; s_b = .2, s_e = .3."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        item = rng.normal(size=(n, 1))
        null = item + 0.2 * rng.normal(size=(1, r)) + 0.3 * rng.normal(size=(n, r))
        out.append((item[:, 0] + 0.3 * rng.normal(size=n), null))
    return out


def test_crossed_bootstrap_covers_where_items_alone_do_not() -> None:
    """The set's population difference is 0; items-only resampling forgets that 20 draws are a sample too."""
    n, r, resamples, count = 100, 20, 600, 400
    crossed = items = 0
    for index, (own, null) in enumerate(_worlds(4, count, n, r)):
        rng = np.random.default_rng(index)
        w, v = st.crossed_weights(n, r, resamples, rng)
        found = st.crossed_interval(own, null, np.arange(n), w, v)
        crossed += found.low <= 0 <= found.high
        alone = st.crossed_interval(own, null, np.arange(n), w, np.ones((resamples, r)))
        items += alone.low <= 0 <= alone.high
    error = math.sqrt(0.95 * 0.05 / count)
    assert crossed / count >= 0.93 - error
    assert items / count == pytest.approx(0.73, abs=0.06)


def test_crossed_interval_is_centred_and_wider() -> None:
    own, null = _worlds(5, 1)[0]
    w, v = st.crossed_weights(60, 20, 2_000, np.random.default_rng(0))
    found = st.crossed_interval(own, null, np.arange(60), w, v)
    assert found.difference == pytest.approx(own.mean() - null.mean())
    assert found.low < found.difference < found.high


def test_crossed_needs_equal_resamples() -> None:
    own, null = _worlds(6, 1)[0]
    w = st.resample_weights(60, 10, np.random.default_rng(0))
    v = st.resample_weights(20, 11, np.random.default_rng(0))
    with pytest.raises(HarnessHeadsError, match="same number"):
        st.crossed_interval(own, null, np.arange(60), w, v)


def test_stability_of_a_clear_winner_is_the_floor() -> None:
    means = np.column_stack([np.full(100, 1.0), np.zeros((100, 20))])
    assert st.rank_stability(means) == pytest.approx((1 / 21, 1 / 21, 1 / 21))


def test_a_fresh_control_leaves_the_interval_of_the_mean() -> None:
    """With 20 draws a fresh one lies outside that interval about two times in three, and inside the prediction band."""
    rng = np.random.default_rng(8)
    draws = rng.normal(size=(4_000, 21))
    fresh, old = draws[:, 0], draws[:, 1:]
    half = stats.t.ppf(0.975, 19) * old.std(axis=1, ddof=1) / math.sqrt(20)
    outside = np.abs(fresh - old.mean(axis=1)) > half
    assert outside.mean() == pytest.approx(0.65, abs=0.03)
    band = st.prediction_band(old)
    assert ((band.low <= fresh) & (fresh <= band.high)).mean() == pytest.approx(0.95, abs=0.012)
