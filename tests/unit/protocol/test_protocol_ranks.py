"""Rank p: closed forms, ties, floors, and uniformity under exchangeable controls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol import statistics as st

SCORES = some.lists(some.floats(-1, 1), min_size=1, max_size=30)


def test_a_set_above_all_controls_has_the_floor() -> None:
    assert st.rank_p(1.0, np.zeros(20)) == pytest.approx(1 / 21)
    assert st.floor(20) == pytest.approx(1 / 21)


def test_ties_count_against_the_set() -> None:
    assert st.rank_p(0.5, [0.5, 0.1, 0.9]) == pytest.approx(3 / 4)
    assert st.rank_p(0.5, [0.5, 0.1, 0.9], "lower") == pytest.approx(3 / 4)


def test_float_noise_breaks_no_tie() -> None:
    assert st.rank_p(0.5, [0.5 - 1e-9]) == 1.0
    assert st.rank_p(0.5, [0.5 - 1e-9], tolerance=0) == 0.5


def test_no_controls_is_not_estimable() -> None:
    assert math.isnan(st.rank_p(0.1, []))
    assert math.isnan(st.floor(0))


def test_nan_is_never_a_rank() -> None:
    assert math.isnan(st.rank_p(math.nan, [0.1]))
    assert math.isnan(st.rank_p(0.1, [math.nan, 0.0]))


@given(SCORES, some.floats(-1, 1))
def test_the_two_tails_meet(controls: list[float], value: float) -> None:
    upper, lower = (float(st.rank_p(value, controls, t)) for t in ("upper", "lower"))
    # every control is on one side, or, tied, on both
    assert upper + lower >= 1 + 1 / (len(controls) + 1) - 1e-12
    assert st.rank_p(value, controls, "two-sided") == pytest.approx(min(1, 2 * min(upper, lower)))


@given(SCORES, some.floats(-1, 1), some.floats(-1, 1))
def test_a_higher_score_never_has_a_larger_p(controls: list[float], a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert st.rank_p(high, controls) <= st.rank_p(low, controls)


def test_many_tests_at_once_equal_one_by_one() -> None:
    rng = np.random.default_rng(0)
    values, controls = rng.normal(size=(3, 4)), rng.normal(size=(3, 4, 19))
    together = st.rank_p(values, controls)
    assert together.shape == (3, 4)
    assert together[1, 2] == st.rank_p(values[1, 2], controls[1, 2])


def test_rank_p_is_uniform_under_exchangeable_controls() -> None:
    """2,100 sets that are one more draw: exact chi-square over k/21."""
    draws = np.random.default_rng(11).gumbel(size=(2_100, 21))
    ranks = np.rint(st.rank_p(draws[:, 0], draws[:, 1:]) * 21).astype(int)
    counts = np.bincount(ranks, minlength=22)[1:]
    assert stats.chisquare(counts).pvalue > 0.001
    assert counts.sum() == 2_100


@pytest.mark.parametrize(
    ("alpha", "tests", "needed"),
    [(0.05, 1, 19), (0.05, 2, 39), (0.05, 6, 119), (0.05, 12, 239), (0.05, 24, 479), (0.01, 12, 1199)],
)
def test_least_number_of_controls(alpha: float, tests: int, needed: int) -> None:
    assert st.minimum_controls(alpha, tests) == needed
    assert st.floor(needed, tests) <= alpha + 1e-12 < st.floor(needed - 1, tests) + 2e-12


def test_controls_that_survive_one_exceedance() -> None:
    assert st.minimum_controls(0.05, 12, exceedances=1) == 479
    controls = np.zeros(479)
    controls[0] = 2.0
    assert 12 * st.rank_p(1.0, controls) <= 0.05 + 1e-12


def test_sequential_p_stops_at_the_exceedance() -> None:
    controls = [0.0, 2.0, 0.0, 2.0, 2.0, 0.0]
    assert st.sequential_p(1.0, controls, 2) == (2 / 4, 4, 2)
    assert st.sequential_p(1.0, controls, 4) == (4 / 7, 6, 3)


def test_sequential_p_is_valid_at_every_value() -> None:
    rng = np.random.default_rng(5)
    null = rng.normal(size=(4_000, 61))
    p = np.array([st.sequential_p(row[0], row[1:], 3).p for row in null])
    for level in (0.05, 0.1, 0.2, 0.5):
        # three Monte Carlo standard errors above the level at most
        assert (p <= level).mean() <= level + 3 * math.sqrt(level / 4_000)


def test_two_stage_rule_is_valid() -> None:
    """Twenty draws, 250 if none exceeds: P(p <= 1/251) is .0040 and P(p <= 1/21) about .030, both at most the level."""
    rng = np.random.default_rng(7)
    null = rng.random((20_000, 251))
    p = np.array([st.two_stage_p(row[0], row[1:]).p for row in null])
    for level, expected in ((1 / 251, 0.0040), (1 / 21, 0.030), (2 / 21, 0.090)):
        share = (p <= level + 1e-12).mean()
        assert share <= level + 3 * math.sqrt(level / 20_000)
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected / 20_000))


def test_two_stage_keeps_the_first_draws() -> None:
    controls = np.zeros(250)
    assert st.two_stage_p(1.0, controls) == (1 / 251, 250, 0)
    controls[3] = 2.0
    assert st.two_stage_p(1.0, controls) == (2 / 21, 20, 1)
    controls[3], controls[100] = 0.0, 2.0
    assert st.two_stage_p(1.0, controls) == (2 / 251, 250, 1)


def test_more_controls_for_winners_without_a_rule_is_anticonservative() -> None:
    """What the rule prevents: look after every 20 draws and keep the smallest p."""
    null = np.random.default_rng(3).random((10_000, 201))
    looks = [st.rank_p(null[:, 0], null[:, 1 : r + 1]) for r in range(20, 201, 20)]
    best = np.min(looks, axis=0)
    assert (best <= 1 / 21 + 1e-12).mean() > 1 / 21 + 5 * math.sqrt(1 / 21 / 10_000)


@pytest.mark.parametrize(
    "call",
    [
        lambda: st.rank_p(0, [0], "both"),  # type: ignore[arg-type]
        lambda: st.rank_p(0, [0], tolerance=-1),
        lambda: st.minimum_controls(0),
        lambda: st.minimum_controls(0.05, 0),
        lambda: st.floor(-1),
        lambda: st.sequential_p(0, [0], 0),
        lambda: st.two_stage_p(0, [0], 20),
    ],
)
def test_arguments_are_refused_before_data_are_read(call: object) -> None:
    with pytest.raises(HarnessHeadsError):
        call()  # type: ignore[operator]
