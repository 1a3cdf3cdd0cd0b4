"""Paired tests, equivalence, association and power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol import statistics as st


def test_paired_t_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.2, 1, 50), rng.normal(0, 1, 50)
    theirs = stats.ttest_rel(a, b)
    ours = st.paired_t(a - b)
    assert (ours.t, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert st.paired_t(a - b, tail="upper").p == pytest.approx(stats.ttest_rel(a, b, alternative="greater").pvalue)


def test_a_printed_p_gives_its_t_back() -> None:
    found = st.paired_t(np.random.default_rng(1).normal(0.3, 1, 80))
    assert st.t_from_p(found.p, 79) == pytest.approx(abs(found.t))


def test_constant_differences_have_no_t() -> None:
    found = st.paired_t(np.full(5, 0.1))
    assert math.isnan(found.p)
    assert found.reason


def test_wilcoxon_agrees_with_scipy_and_refuses_all_zero() -> None:
    d = np.random.default_rng(2).normal(0.4, 1, 30)
    assert st.wilcoxon_p(d) == pytest.approx(float(stats.wilcoxon(d).pvalue))
    assert math.isnan(st.wilcoxon_p(np.zeros(4)))


def test_sign_flip_is_exact_for_three_items() -> None:
    """All differences positive: 2 of 8 sign patterns reach |sum|; the Monte Carlo p goes to 1/4."""
    found = st.sign_flip([1.0, 2.0, 3.0], np.random.default_rng(3), 40_000)
    assert found.p == pytest.approx(0.25, abs=0.01)


def test_sign_flip_cannot_be_smaller_than_its_floor() -> None:
    found = st.sign_flip(np.full(60, 1.0) + np.arange(60) / 100, np.random.default_rng(4), 500)
    assert found.p == found.floor == pytest.approx(1 / 501)


def test_sign_flip_has_its_level_and_flips_clusters_whole() -> None:
    rng = np.random.default_rng(5)
    codes = np.repeat(np.arange(15), 4)
    naive = whole = 0
    for _ in range(400):
        d = rng.normal(size=15)[codes] + 0.1 * rng.normal(size=60)
        whole += st.sign_flip(d, rng, 199, codes).p <= 0.05
        naive += st.sign_flip(d, rng, 199).p <= 0.05
    assert whole / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert naive / 400 > 0.2


def test_equivalence_is_two_one_sided_tests() -> None:
    found = st.equivalence(0.01, 0.02, 99, 0.05)
    by_hand = max(stats.t.sf((0.01 + 0.05) / 0.02, 99), stats.t.sf((0.05 - 0.01) / 0.02, 99))
    assert found.p == pytest.approx(by_hand)
    # p <= alpha exactly when the 90 % interval lies inside the margin
    assert (found.p <= 0.05) == (found.low > -0.05 and found.high < 0.05)


def test_equivalence_at_the_margin_has_its_level() -> None:
    rng = np.random.default_rng(6)
    passed = 0
    for _ in range(2_000):
        estimate = st.t_interval(rng.normal(0.1, 1, 60))
        passed += st.equivalence(float(estimate.mean), float(estimate.se), estimate.df, 0.1).p <= 0.05
    assert passed / 2_000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2_000)


def test_a_noisy_silence_is_no_equivalence() -> None:
    assert st.equivalence(0.0, 0.5, 20, 0.1).p > 0.05


def test_equivalence_needs_a_margin() -> None:
    with pytest.raises(HarnessHeadsError, match="margin"):
        st.equivalence(0.0, 0.1, 10, 0.0)


def test_head_sets_as_units_have_a_high_floor() -> None:
    assert st.set_level_floor(4, 4) == pytest.approx(1 / 70)
    assert st.set_level_floor(2, 2) == pytest.approx(1 / 6)


def test_group_difference_averages_settings() -> None:
    a, b = np.arange(6.0).reshape(3, 2), np.ones((3, 4))
    assert st.group_difference(a, b).tolist() == [-0.5, 1.5, 3.5]


def test_spearman_agrees_with_scipy() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=20), rng.normal(size=20)
    theirs = stats.spearmanr(x, y)
    assert st.spearman(x, y)[:2] == pytest.approx((theirs.statistic, theirs.pvalue))
    assert math.isnan(st.spearman([1, 1, 1], [1, 2, 3]).rho)
    assert math.isnan(st.spearman([1, 2], [1, 2]).rho)


def test_twenty_sets_need_a_rho_of_444() -> None:
    assert st.critical_rho(20) == pytest.approx(0.444, abs=0.001)
    assert st.critical_rho(20, 0.05 / 60) == pytest.approx(0.69, abs=0.01)


def test_uncorrected_correlations_are_counted() -> None:
    p = np.random.default_rng(8).random(60)
    p[0] = 0.0001
    found = st.uncorrected_count(np.append(p, math.nan))
    assert found.tests == 60
    assert found.by_chance == pytest.approx(3)
    assert found.passing == (p <= 0.05).sum()
    assert found.passing_bonferroni == (p <= 0.05 / 60).sum()


def test_mass_statistics_by_hand() -> None:
    found = st.mass_statistics(np.array([[0.1, 0.3, 0.2, 0.6]]))
    assert [float(found[k][0]) for k in st.MASS_STATISTICS] == pytest.approx(
        [0.3, 0.25, 0.1, 0.6, np.std([0.1, 0.3, 0.2, 0.6], ddof=1)]
    )


def test_too_few_controls_detect_nothing() -> None:
    found = st.detectable_by_rank(20, 0.01, 0.0, tests=12)
    assert math.isinf(found.effect)
    assert "above alpha" in found.reason


def test_detectable_effect_of_twenty_controls_in_closed_form() -> None:
    """The set must pass the largest of R normal controls: the .8 quantile of that maximum."""
    found = st.detectable_by_rank(20, 0.2, 0.0)
    assert found.effect == pytest.approx(0.2 * stats.norm.ppf(0.8 ** (1 / 20)), rel=1e-6)


def test_detectable_effect_is_reached_in_simulation() -> None:
    found = st.detectable_by_rank(59, 0.05, 0.03, tests=2)
    rng = np.random.default_rng(9)
    sets = found.effect + 0.03 * rng.normal(size=4_000)
    p = st.rank_p(sets, 0.05 * rng.normal(size=(4_000, 59)))
    assert (2 * p <= 0.05 + 1e-12).mean() == pytest.approx(0.8, abs=0.02)


def test_more_controls_of_equal_spread_help_up_to_the_noise() -> None:
    effects = [st.detectable_by_rank(r, 0.1, 0.02).effect for r in (19, 59, 199)]
    assert effects == sorted(effects, reverse=True)


def test_detectable_by_items_is_the_t_test_power() -> None:
    effect = st.detectable_by_items(100, 0.4)
    rng = np.random.default_rng(10)
    y = rng.normal(effect, 0.4, size=(3_000, 100))
    found = st.t_interval(y.T)
    assert (found.low > 0).mean() == pytest.approx(0.8, abs=0.025)
