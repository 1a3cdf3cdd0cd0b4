"""Item intervals: textbook forms, clusters, percentile and BCa bootstrap, and their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol import statistics as st


def test_t_interval_is_the_textbook_one() -> None:
    y = np.array([0.1, 0.4, -0.2, 0.3, 0.0])
    found = st.t_interval(y)
    half = stats.t.ppf(0.975, 4) * y.std(ddof=1) / math.sqrt(5)
    assert (float(found.low), float(found.high)) == pytest.approx((y.mean() - half, y.mean() + half))
    assert found.df == 4


def test_df_one_has_the_cauchy_quantile() -> None:
    """t_.975 with one degree of freedom is tan(.475 pi)."""
    found = st.t_interval(np.array([0.0, 2.0]))
    assert float(found.high) == pytest.approx(1 + math.tan(math.pi * 0.475))


def test_a_wider_level_is_wider() -> None:
    y = np.random.default_rng(0).normal(size=30)
    narrow, wide = st.t_interval(y, level=0.9), st.t_interval(y, level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_columns_are_independent() -> None:
    y = np.random.default_rng(1).normal(size=(20, 3))
    together = st.t_interval(y)
    assert together.low[2] == pytest.approx(float(st.t_interval(y[:, 2]).low))


def test_every_item_its_own_cluster_changes_nothing() -> None:
    y = np.random.default_rng(2).normal(size=25)
    codes = np.random.default_rng(3).permutation(25)
    a, b = st.t_interval(y, codes), st.t_interval(y)
    assert [float(v) for v in a[:5]] == pytest.approx([float(v) for v in b[:5]])


def test_copies_of_items_add_no_information() -> None:
    """Each item three times, as one cluster: the interval is that of the items taken once."""
    y = np.random.default_rng(4).normal(size=12)
    once = st.t_interval(y)
    thrice = st.t_interval(np.repeat(y, 3), np.repeat(np.arange(12), 3))
    assert (float(thrice.low), float(thrice.high)) == pytest.approx((float(once.low), float(once.high)))
    naive = st.t_interval(np.repeat(y, 3))
    assert naive.high - naive.low < 0.7 * (once.high - once.low)


@pytest.mark.parametrize(("values", "why"), [([], "no item"), ([0.5], "one item")])
def test_too_few_items_have_no_interval(values: list[float], why: str) -> None:
    found = st.t_interval(np.array(values))
    assert math.isnan(float(found.low))
    assert found.reason == why


def test_one_cluster_has_no_interval() -> None:
    found = st.t_interval(np.array([0.1, 0.2]), np.array([0, 0]))
    assert math.isnan(float(found.se))
    assert "share one cluster" in found.reason


def test_level_is_checked_first() -> None:
    with pytest.raises(HarnessHeadsError, match="level"):
        st.t_interval("no data", level=95)  # type: ignore[arg-type]


def test_cluster_codes_follow_first_appearance() -> None:
    assert st.cluster_codes(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]


def test_resample_weights_count_draws() -> None:
    weights = st.resample_weights(7, 50, np.random.default_rng(0))
    assert weights.shape == (50, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert (weights == np.rint(weights)).all()


def test_bootstrap_means_equal_resampling_by_hand() -> None:
    rng = np.random.default_rng(5)
    y, codes = rng.normal(size=(9, 2)), np.array([0, 0, 1, 1, 1, 2, 3, 3, 4])
    weights = st.resample_weights(5, 20, np.random.default_rng(6))
    means = st.bootstrap_means(y, codes, weights)
    for b in range(20):
        rows = [
            i for cluster in range(5) for _ in range(int(weights[b, cluster])) for i in np.flatnonzero(codes == cluster)
        ]
        assert means[b] == pytest.approx(y[rows].mean(axis=0))


def test_shuffled_codes_of_single_items_change_nothing() -> None:
    y = np.random.default_rng(7).normal(size=(6, 1))
    codes = np.array([3, 0, 5, 1, 2, 4])
    weights = st.resample_weights(6, 10, np.random.default_rng(8))
    by_hand = weights @ y[np.argsort(codes)] / 6
    assert st.bootstrap_means(y, codes, weights) == pytest.approx(by_hand)


def test_bca_agrees_with_scipy() -> None:
    y = np.random.default_rng(9).exponential(size=60)
    weights = st.resample_weights(60, 20_000, np.random.default_rng(10))
    resampled = st.bootstrap_means(y[:, None], np.arange(60), weights)
    ours = st.bca_bounds(y[:, None], np.arange(60), resampled)
    theirs = stats.bootstrap((y,), np.mean, n_resamples=20_000, rng=np.random.default_rng(11)).confidence_interval
    assert (ours.low[0], ours.high[0]) == pytest.approx((theirs.low, theirs.high), abs=0.015)
    percentile = st.percentile_bounds(resampled)
    assert ours.high[0] > percentile.high[0]  # a right-skewed mean is pushed up


def test_bca_of_a_constant_is_not_estimable() -> None:
    y = np.full((10, 1), 0.3)
    resampled = st.bootstrap_means(y, np.arange(10), st.resample_weights(10, 50, np.random.default_rng(0)))
    assert math.isnan(st.bca_bounds(y, np.arange(10), resampled).low[0])


def _coverage(clustered: bool, seed: int) -> float:
    """Share of 400 worlds whose 95 % t interval holds the true mean; 20 images of 4 items with a shared part."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(20), 4)
    hits = 0
    for _ in range(400):
        y = rng.normal(size=20)[codes] + 0.5 * rng.normal(size=80)
        found = st.t_interval(y, codes if clustered else None)
        hits += float(found.low) <= 0 <= float(found.high)
    return hits / 400


def test_clusters_restore_the_coverage() -> None:
    assert _coverage(True, 0) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400)
    assert _coverage(False, 0) < 0.8
