"""Overlap of head sets: closed forms, ceilings on made-up scores, decomposition, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness_heads.cli.overlap import labels
from harness_heads.discovery.chance import uniform_chance
from harness_heads.discovery.drawing import overlap_picture
from harness_heads.discovery.overlap import (
    Scored,
    chance_layer_matched,
    crossover,
    decompose,
    distinct,
    matrix,
    overlap_curve,
    split_half,
)
from harness_heads.discovery.score import top_heads
from harness_heads.errors import HarnessHeadsError
from harness_heads.head_sets import resolve
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef
from harness_heads.protocol import statistics as st

GEOMETRY = Geometry((6, 6, 6, 6))
MODEL = ModelRef("toy")


def make(name: str, *pairs: tuple[int, int], model: ModelRef = MODEL, geometry: Geometry = GEOMETRY) -> HeadSet:
    return HeadSet(name, model, geometry, tuple(Head(*p) for p in pairs), tuple(float(i) for i in range(len(pairs))))


A = make("a", (0, 0), (0, 1), (1, 2), (2, 3))
B = make("b", (1, 2), (0, 0), (3, 3))


def test_matrix_holds_sizes_and_shared_heads() -> None:
    assert matrix([A, B]).tolist() == [[4, 2], [2, 3]]


def test_uniform_chance_is_hypergeometric() -> None:
    chance = uniform_chance(100, 100, 1152)
    assert chance.mean == pytest.approx(100 * 100 / 1152)
    assert chance.sd == pytest.approx(math.sqrt(8.680556 * (1 - 100 / 1152) * 1052 / 1151), rel=1e-6)
    assert (chance.low, chance.high) == (4, 14)


def test_layer_matched_chance_sums_layers() -> None:
    chance = chance_layer_matched(A, B)
    assert chance.mean == pytest.approx(2 * 1 / 6 + 1 * 1 / 6)
    variance = sum(a * b * (6 - a) * (6 - b) / (36 * 5) for a, b in ((2, 1), (1, 1)))
    assert chance.sd == pytest.approx(math.sqrt(variance))
    assert chance.low == 0


@pytest.mark.parametrize(
    ("one", "other", "uniform", "low", "high"),
    [("qwen3-vl-8b", "internvl3.5-8b", 0.35, 2.0, 2.4), ("qwen2.5-vl-7b", "internvl3-8b", 0.51, 3.45, 4.25)],
)
def test_golden_chance_of_the_published_sets(one: str, other: str, uniform: float, low: float, high: float) -> None:
    for benchmark in ("refcoco", "refcoco-plus", "refcocog", "toloka", "refspatial"):
        a, b = resolve(f"vrh/{one}/{benchmark}"), resolve(f"vrh/{other}/{benchmark}")
        assert uniform_chance(20, 20, a.geometry.total).mean == pytest.approx(uniform, abs=0.005)
        assert low < chance_layer_matched(a, b).mean < high


def test_curve_against_k() -> None:
    assert overlap_curve(A.heads, B.heads, [1, 2, 3]) == [0, 1, 2]
    with pytest.raises(HarnessHeadsError, match="k=4, the shorter ranking holds 3"):
        overlap_curve(A.heads, B.heads, [4])


def test_crossover_table() -> None:
    table = crossover({"a": A.heads, "b": B.heads}, {"native": A.heads}, 3)
    assert table == {"a": {"native": 3}, "b": {"native": 2}}


def noisy(name: str, signal: np.ndarray, noise: float, seed: int, clusters: int = 40) -> Scored:
    rng = np.random.default_rng(seed)
    scores = signal + noise * rng.standard_normal((clusters, *signal.shape))
    return Scored(name, GEOMETRY, scores, tuple(str(i) for i in range(clusters)))


SIGNAL = np.random.default_rng(0).random((4, 6))


def test_without_noise_halves_agree_and_the_overlap_is_its_own_ceiling() -> None:
    result = split_half(noisy("x", SIGNAL, 0, 1), noisy("y", SIGNAL, 0, 2), 5, splits=20)
    assert (result.cross, result.ceiling, result.fraction, result.corrected) == (5.0, 5.0, 1.0, 1.0)
    assert result.half == 20


def test_noise_lowers_the_ceiling_and_the_fraction_stays_near_one_for_one_signal() -> None:
    result = split_half(noisy("x", SIGNAL, 0.8, 1), noisy("y", SIGNAL, 0.8, 2), 5, splits=60)
    assert result.ceiling < 4.5
    assert result.fraction == pytest.approx(1.0, abs=0.15)
    assert result.ceiling == pytest.approx(math.sqrt(result.own[0] * result.own[1]))
    assert result.chance == pytest.approx(25 / 24)


def test_different_signals_stay_below_the_ceiling() -> None:
    result = split_half(noisy("x", SIGNAL, 0.05, 1), noisy("y", SIGNAL[::-1], 0.05, 2), 5, splits=20)
    assert result.fraction < 0.7


def test_equal_clusters_are_split_alike() -> None:
    """Pure noise: across halves a setting shares no sample with itself, so it shares heads at most by chance."""
    same = noisy("x", np.zeros((4, 6)), 1.0, 3, clusters=60)
    result = split_half(same, same, 5, splits=40)
    assert result.cross == pytest.approx(result.own[0])
    assert result.cross <= result.chance + 0.5


def test_a_setting_that_read_fewer_samples_shares_none_across_halves() -> None:
    """Pure noise, the smaller setting is the larger one's first samples: what the halves share is chance alone."""
    large = noisy("x", np.zeros((4, 6)), 1.0, 3, clusters=60)
    small = Scored("y", GEOMETRY, large.scores[:20], large.clusters[:20])
    result = split_half(large, small, 5, splits=200)
    assert result.half == 10
    assert result.cross <= result.chance + 0.1
    # with the same samples on both sides noise alone would share more
    assert (
        len(set(top_heads(large.scores.mean(0), GEOMETRY, 5)) & set(top_heads(small.scores.mean(0), GEOMETRY, 5))) > 1
    )


def test_odd_groups_of_clusters_are_dealt_evenly() -> None:
    one = noisy("x", SIGNAL, 0, 1, clusters=3)
    other = Scored("y", GEOMETRY, one.scores, ("0", "p", "q"))  # one in common, two of its own
    assert split_half(one, other, 2, splits=4).half == 1


def test_half_splits_agree_with_the_protocols() -> None:
    """Two ways to the same numbers: sets of heads here, products of matrices there."""
    a, b = noisy("x", SIGNAL, 0.6, 1), noisy("y", SIGNAL, 0.9, 2)
    order = np.argsort(a.clusters)  # halves are drawn over sorted names
    result = split_half(a, b, 5, splits=50)
    flat = [scored.scores.reshape(40, -1)[order] for scored in (a, b)]
    cross = st.half_split_overlaps(*flat, 5, 50, np.random.default_rng([0, 0x5F]))
    own = [st.half_split_overlaps(x, x, 5, 50, np.random.default_rng([0, 0x5F])).mean for x in flat]
    assert (cross.mean, cross.low, cross.high) == pytest.approx((result.cross, *result.cross_range))
    assert own == pytest.approx(list(result.own))
    assert result.fraction == pytest.approx(result.cross / math.sqrt(own[0] * own[1]))


def test_clusters_stay_whole() -> None:
    scores = np.zeros((6, 4, 6))
    scores[:3, 0, 0] = 9.0  # one cluster of three samples
    scored = Scored("x", GEOMETRY, scores, ("p", "p", "p", "q", "q", "q"))
    result = split_half(scored, scored, 1, splits=8)
    assert result.half == 3


def test_halves_need_two_clusters_and_a_common_geometry() -> None:
    lone = Scored("x", GEOMETRY, np.zeros((3, 4, 6)), ("p", "p", "p"))
    with pytest.raises(HarnessHeadsError, match="at least two clusters"):
        split_half(lone, lone, 2)
    other = Scored("y", Geometry((6, 6)), np.zeros((2, 2, 6)), ("p", "q"))
    with pytest.raises(HarnessHeadsError, match="different geometry"):
        split_half(lone, other, 2)
    with pytest.raises(HarnessHeadsError, match="2 cluster names for 3 samples"):
        Scored("z", GEOMETRY, np.zeros((3, 4, 6)), ("p", "q"))


def test_decomposition_keeps_order_and_scores() -> None:
    parts = decompose(A, B)
    assert parts.shared is not None and parts.only_a is not None and parts.only_b is not None
    assert parts.shared.heads == (Head(0, 0), Head(1, 2))
    assert parts.shared.scores == (0.0, 2.0)
    assert parts.only_a.heads == (Head(0, 1), Head(2, 3))
    assert parts.only_b.heads == (Head(3, 3),)
    assert len({parts.shared.name, parts.only_a.name, parts.only_b.name}) == 3
    assert decompose(A, A).only_a is None


def test_parts_of_many_sets_have_names_of_their_own() -> None:
    """Two methods on one corpus, and the same setting of two runs."""
    pairs = ((0, 0), (0, 1)), ((0, 0), (1, 1)), ((0, 0), (2, 2)), ((0, 0), (3, 3))
    names = ("m/vrh/digits", "m/gaze/digits", "m/dg-ref-qsp", "m/dg-ref-qsp")
    sets = distinct([make(name, *heads) for name, heads in zip(names, pairs, strict=True)])
    parts = [decompose(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
    made = [p.name for d in parts for p in (d.shared, d.only_a, d.only_b) if p is not None]
    assert len(made) == 3 * 6 == len(set(made))
    assert "m/vrh/digits/shared-with-gaze-digits" in made


@pytest.mark.parametrize(
    ("names", "specs", "wanted"),
    [
        (("m/vrh/digits", "m/gaze/digits"), ("a", "b"), ["vrh/digits", "gaze/digits"]),
        (("m/vrh/digits", "m/dg-ref-qsp"), ("a", "b"), ["vrh/digits", "dg-ref-qsp"]),
        (("m/x", "m/x", "m/y"), ("r1/x", "r2/x", "r1/y"), ["r1/x", "r2/x", "y"]),
        (("m/x", "m/x"), ("r1/x", "r1/x"), ["r1/x (1)", "r1/x (2)"]),
        (("m/x",), ("r1/x",), ["x"]),
    ],
)
def test_labels_tell_sets_apart(names: tuple[str, ...], specs: tuple[str, ...], wanted: list[str]) -> None:
    assert labels(names, specs) == wanted


def test_sets_of_different_geometry_cannot_be_compared() -> None:
    with pytest.raises(HarnessHeadsError, match="have different geometry"):
        matrix([A, make("c", (0, 0), geometry=Geometry((6, 6)))])


def test_sets_of_different_models_are_not_taken_apart() -> None:
    with pytest.raises(HarnessHeadsError, match="transfer one first"):
        decompose(A, make("c", (0, 0), model=ModelRef("other")))


def test_the_picture_shows_every_count() -> None:
    picture = overlap_picture(matrix([A, B]), ["a", "b<c>"])
    assert picture.count("<rect") == 4
    assert "b&lt;c&gt;" in picture and "b<c>" not in picture
