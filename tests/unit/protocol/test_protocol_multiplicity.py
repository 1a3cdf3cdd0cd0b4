"""Holm and max-T: closed forms, and family-wise error within Monte Carlo bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol import statistics as st

PS = some.lists(some.floats(0, 1), min_size=1, max_size=12)


def test_holm_by_hand() -> None:
    assert st.holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])


def test_holm_keeps_order_and_is_at_least_p() -> None:
    p = np.array([0.2, 0.001, 0.04, 0.04])
    adjusted = st.holm(p)
    assert (adjusted >= p).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()


@given(PS)
def test_holm_lies_between_p_and_bonferroni(p: list[float]) -> None:
    adjusted = st.holm(p)
    assert (adjusted >= np.array(p) - 1e-12).all()
    assert (adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-12).all()


def test_holm_counts_tests_that_are_not_listed() -> None:
    assert st.holm([1 / 251], 12)[0] == pytest.approx(12 / 251)


def test_holm_leaves_nan_out() -> None:
    adjusted = st.holm([0.02, math.nan, 0.03])
    assert math.isnan(adjusted[1])
    assert adjusted[0] == pytest.approx(0.04)


def test_holm_refuses_fewer_tests_than_listed() -> None:
    with pytest.raises(HarnessHeadsError, match="m counts every test"):
        st.holm([0.1, 0.2], 1)


def _null(seed: int, worlds: int, m: int, r: int, shared: float) -> np.ndarray:
    """Scores of sets and controls, [worlds, m, 1 + r], correlated over tests."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(worlds, 1, 1 + r))
    return math.sqrt(shared) * common + math.sqrt(1 - shared) * rng.normal(size=(worlds, m, 1 + r))


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_family_wise_error_of_holm_and_max_t(shared: float) -> None:
    worlds, alpha = 1_500, 0.05
    null = _null(2, worlds, 6, 199, shared)
    p = st.rank_p(null[:, :, 0], null[:, :, 1:])
    holm = np.array([st.holm(row).min() for row in p])
    joint = np.array([st.max_t(world[:, 0], world[:, 1:]).min() for world in null])
    bound = alpha + 3 * math.sqrt(alpha * (1 - alpha) / worlds)
    assert (holm <= alpha).mean() <= bound
    assert (joint <= alpha).mean() <= bound
    # and max-T spends its level: it is no empty promise
    assert (joint <= alpha).mean() >= alpha - 4 * math.sqrt(alpha / worlds)


def test_max_t_has_no_factor_m_in_its_floor() -> None:
    rng = np.random.default_rng(0)
    controls = rng.normal(size=(12, 20))
    values = np.full(12, 0.0)
    values[4] = 20.0
    adjusted = st.max_t(values, controls)
    assert adjusted[4] == pytest.approx(1 / 21)
    assert st.holm(st.rank_p(values, controls))[4] == pytest.approx(12 / 21)


def test_max_t_of_one_test_is_its_rank_p() -> None:
    rng = np.random.default_rng(1)
    controls = rng.normal(size=(1, 30))
    for value in rng.normal(size=20):
        assert st.max_t([value], controls)[0] == pytest.approx(float(st.rank_p(value, controls[0])))


def test_max_t_is_monotone_in_z() -> None:
    rng = np.random.default_rng(4)
    controls = rng.normal(size=(5, 40))
    values = np.array([3.0, 1.0, 0.0, 2.0, -1.0])
    adjusted = st.max_t(values, controls)
    assert (np.diff(adjusted[np.argsort(-values)]) >= 0).all()


def test_max_t_without_any_spread_is_one() -> None:
    assert st.max_t([0.5], np.full((1, 9), 0.5))[0] == 1.0


def test_max_t_refuses_shapes_that_do_not_fit() -> None:
    with pytest.raises(HarnessHeadsError, match="shape"):
        st.max_t([0.1, 0.2], np.zeros((3, 5)))
