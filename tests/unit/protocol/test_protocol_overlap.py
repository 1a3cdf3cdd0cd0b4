"""Chance overlap, split-half ceiling, shared and only heads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head
from harness_heads.protocol import statistics as st


def test_uniform_chance_of_two_top_100_sets() -> None:
    found = st.uniform_chance(100, 100, 1152)
    assert found.mean == pytest.approx(8.68, abs=0.005)
    assert found.sd == pytest.approx(2.69, abs=0.005)
    assert (found.low, found.high) == (4, 14)


def test_one_layer_is_the_uniform_case() -> None:
    assert st.layer_chance([7], [5], [40]) == pytest.approx(st.uniform_chance(7, 5, 40))


@given(some.lists(some.tuples(some.integers(0, 4), some.integers(0, 4), some.integers(4, 9)), min_size=1, max_size=6))
def test_layer_chance_by_formula(layers: list[tuple[int, int, int]]) -> None:
    a, b, h = (list(v) for v in zip(*layers, strict=True))
    found = st.layer_chance(a, b, h)
    assert found.mean == pytest.approx(sum(x * y / z for x, y, z in layers))
    variance = sum(x * y * (z - x) * (z - y) / (z * z * (z - 1)) for x, y, z in layers)
    assert found.sd == pytest.approx(math.sqrt(variance))
    assert 0 <= found.low <= found.high <= sum(min(x, y) for x, y, _ in layers)


def test_layer_chance_interval_is_exact() -> None:
    """Against a simulation of two layer-matched sets."""
    rng = np.random.default_rng(0)
    a, b, h = [3, 5, 0, 2], [4, 4, 3, 2], [8, 8, 8, 8]
    totals = np.zeros(20_000, int)
    for x, y, z in zip(a, b, h, strict=True):
        totals += rng.hypergeometric(x, z - x, y, size=20_000) if y else 0
    found = st.layer_chance(a, b, h)
    assert found.mean == pytest.approx(totals.mean(), abs=0.03)
    assert (totals < found.low).mean() <= 0.025 + 0.003
    assert (totals > found.high).mean() <= 0.025 + 0.003


def test_chance_refuses_sets_that_do_not_fit() -> None:
    with pytest.raises(HarnessHeadsError):
        st.uniform_chance(5, 2, 4)
    with pytest.raises(HarnessHeadsError, match="layer 1"):
        st.layer_chance([1, 9], [1, 1], [4, 4])


def test_ceiling_is_the_attenuation_formula() -> None:
    found = st.ceiling_fraction(40, 90, 80, chance=10)
    assert found.ceiling == pytest.approx(math.sqrt(90 * 80))
    assert found.fraction == pytest.approx(40 / math.sqrt(7200))
    assert found.corrected == pytest.approx(30 / (math.sqrt(7200) - 10))


def test_nothing_in_common_with_itself_has_no_fraction() -> None:
    assert math.isnan(st.ceiling_fraction(0, 0, 5).fraction)


def test_half_splits_find_a_planted_structure() -> None:
    rng = np.random.default_rng(1)
    shared = np.zeros(60)
    shared[:10] = 3.0
    own = np.zeros(60)
    own[10:20] = 3.0
    a = shared + rng.normal(size=(40, 60))
    b = shared / 2 + own + rng.normal(size=(40, 60))
    same = st.half_split_overlaps(a, a, 10, 50, np.random.default_rng(2))
    cross = st.half_split_overlaps(a, b, 10, 50, np.random.default_rng(2))
    assert same.mean == pytest.approx(10, abs=0.2)
    assert cross.mean < 2
    assert cross.low <= cross.mean <= cross.high


def test_noise_halves_agree_at_chance() -> None:
    """One split of fresh data each time: its halves are independent, so the overlap is that of two random sets."""
    rng = np.random.default_rng(3)
    means = []
    for _ in range(300):
        a = rng.normal(size=(10, 80))
        means.append(st.half_split_overlaps(a, a, 20, 1, rng).mean)
    chance = st.uniform_chance(20, 20, 80)
    assert np.mean(means) == pytest.approx(chance.mean, abs=4 * chance.sd / math.sqrt(300))


@given(some.sets(some.integers(0, 30)), some.sets(some.integers(0, 30)))
def test_parts_make_the_sets(one: set[int], two: set[int]) -> None:
    a, b = [Head(0, i) for i in one], [Head(0, i) for i in two]
    parts = st.decompose(a, b)
    assert sorted((*parts.shared, *parts.first_only)) == sorted(a)
    assert sorted((*parts.shared, *parts.second_only)) == sorted(b)


def test_random_sets_overlap_as_chance_says() -> None:
    rng = np.random.default_rng(5)
    counts = [len(set(rng.choice(96, 8, replace=False)) & set(rng.choice(96, 8, replace=False))) for _ in range(4_000)]
    law = stats.hypergeom(96, 8, 8)
    assert np.mean(counts) == pytest.approx(st.uniform_chance(8, 8, 96).mean, abs=4 * law.std() / math.sqrt(4_000))


def test_half_splits_by_sets_of_heads_one_at_a_time() -> None:
    """The same numbers as taking each half's strips, averaging and sorting; heads of equal score are among them."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 3, (30, 40)) / 3 for _ in range(2))
    a[:, 7] = a[:, 5]
    codes = np.repeat(np.arange(15), 2)
    found = st.half_split_overlaps(a, b, 9, 40, np.random.default_rng(4), codes)
    again, shared = np.random.default_rng(4), []
    for _ in range(40):
        order = again.permutation(15)
        halves = [np.isin(codes, order[:7]), np.isin(codes, order[7:14])]
        tops = [
            [set(np.argsort(-np.round(x[h].mean(axis=0), 12), kind="stable")[:9].tolist()) for h in halves]
            for x in (a, b)
        ]
        shared.append((len(tops[0][0] & tops[1][1]) + len(tops[0][1] & tops[1][0])) / 2)
    assert found.mean == np.mean(shared)
    assert (found.low, found.high) == tuple(np.quantile(shared, [0.025, 0.975]))
