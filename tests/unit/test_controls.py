"""Control families: sizes, nulls, seeds and every error."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from harness_heads.controls import HeadFacts, draw_controls, facts_from_dict, facts_of, set_table
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, SetTable, set_table_from_list
from harness_heads.settings import CONTROL_FAMILIES, Settings

MODEL = ModelRef("toy/model")
GEOMETRY = Geometry((8, 0, 8, 8), (2, 0, 2, 2))
DRAWN = tuple(family for family in CONTROL_FAMILIES if family != "damage")


def make(*pairs: tuple[int, int], name: str = "found", geometry: Geometry = GEOMETRY) -> HeadSet:
    return HeadSet(name, MODEL, geometry, tuple(Head(*pair) for pair in pairs))


FOUND = make((0, 0), (0, 1), (2, 5))


def facts(geometry: Geometry = GEOMETRY) -> HeadFacts:
    """Mass rises with the head index, so that neighbours are the nearest."""
    heads = geometry.all_heads()
    mass = {h: (h.head + 1) / 20 for h in heads}
    return HeadFacts(
        image_mass=mass,
        sink_mass={h: 1 / (1 + h.head + 10 * h.layer) for h in heads},
        text_mass={h: (h.layer + h.head / 10) / 10 for h in heads},
        scores={h: i / 100 for i, h in enumerate(heads)},
    )


@pytest.mark.parametrize("family", DRAWN)
@pytest.mark.parametrize("exclude", [False, True])
def test_every_draw_has_the_sets_size_differs_from_it_and_says_where_it_came_from(family: str, exclude: bool) -> None:
    drawn = draw_controls(FOUND, family, 60, seed=3, exclude_set=exclude, facts=facts(), low_score_percentile=40)
    assert len(drawn) == 60
    for index, control in enumerate(drawn):
        note = control.provenance
        assert len(set(control.heads)) == len(FOUND)
        assert control.identity != FOUND.identity
        assert (note["family"], note["seed"], note["draw"], note["parent"]) == (family, 3, index, FOUND.key)
        assert note["overlap"] == len(set(control) & set(FOUND))
        assert note["pool"] >= len(control)
        if exclude or family in ("attention", "low_score", "disjoint"):
            assert note["overlap"] == 0


@pytest.mark.parametrize("family", ["layer", "attention", "kv_group"])
def test_layer_profile_is_kept(family: str) -> None:
    for control in draw_controls(FOUND, family, 40, seed=0, facts=facts()):
        assert control.per_layer == FOUND.per_layer


@given(seed=st.integers(0, 10**6), few=st.integers(0, 6), more=st.integers(0, 6))
def test_draw_r_is_the_same_whatever_count_is_asked(seed: int, few: int, more: int) -> None:
    assert draw_controls(FOUND, "layer", few, seed) == draw_controls(FOUND, "layer", few + more, seed)[:few]


def test_streams_differ_by_seed_family_and_parent() -> None:
    other = make((0, 0), (0, 1), (2, 6))
    streams = [
        draw_controls(FOUND, "any", 12, 0),
        draw_controls(FOUND, "any", 12, 1),
        draw_controls(FOUND, "disjoint", 12, 0),
        draw_controls(other, "any", 12, 0),
    ]
    assert len({tuple(control.heads for control in stream) for stream in streams}) == len(streams)


def test_a_renamed_set_keeps_its_controls() -> None:
    renamed = make((2, 5), (0, 1), (0, 0), name="another name")
    assert [c.heads for c in draw_controls(renamed, "layer", 9, 5)] == [
        c.heads for c in draw_controls(FOUND, "layer", 9, 5)
    ]


def test_layer_family_is_uniform_over_all_sets_with_the_profile_but_the_set_itself() -> None:
    geometry = Geometry((4, 3))
    parent = make((0, 0), (0, 1), (1, 2), geometry=geometry)
    possible = {
        (*(Head(0, h) for h in pair), Head(1, one)) for pair in combinations(range(4), 2) for one in range(3)
    } - {parent.heads}
    counts = Counter(control.heads for control in draw_controls(parent, "layer", 3400, seed=11))
    assert set(counts) == possible
    assert chisquare([counts[heads] for heads in sorted(possible)]).pvalue > 1e-3


def test_kv_group_keeps_how_many_heads_share_a_group_and_moves_the_groups() -> None:
    parent = make((0, 0), (0, 1), (0, 4), (2, 6))  # layer 0: 2 of one group and 1 of the other
    first_groups = set()
    for control in draw_controls(parent, "kv_group", 60, seed=0):
        layer0 = Counter(GEOMETRY.kv_group(h) for h in control if h.layer == 0)
        assert sorted(layer0.values()) == [1, 2]
        first_groups.add(layer0.most_common(1)[0][0])
    assert first_groups == {0, 1}


def test_attention_family_is_nearer_in_mass_than_the_layer_family_and_says_so() -> None:
    wide = Geometry((16, 16))
    parent = make((0, 12), (0, 13), (1, 11), geometry=wide)
    near = draw_controls(parent, "attention", 50, seed=0, facts=facts(wide))
    plain = draw_controls(parent, "layer", 50, seed=0, facts=facts(wide))
    target = near[0].provenance["image_mass"]["set"]
    assert target == pytest.approx((13 + 14 + 12) / 60)

    def distance(control: HeadSet) -> float:
        return abs(float(control.provenance["image_mass"]["control"]) - target)

    assert np.mean([distance(c) for c in near]) < np.mean([distance(c) for c in plain])
    mass = facts(wide).image_mass
    assert near[0].provenance["image_mass"]["control"] == pytest.approx(np.mean([mass[h] for h in near[0]]))


def test_low_score_draws_only_below_the_cut() -> None:
    scores = facts().scores
    cut = np.percentile(list(scores.values()), 40)
    for control in draw_controls(FOUND, "low_score", 20, seed=0, facts=facts(), low_score_percentile=40):
        assert all(scores[h] < cut for h in control)


def test_damage_has_one_set_a_kind_each_of_its_own_size() -> None:
    drawn = draw_controls(FOUND, "damage", 99, seed=0, facts=facts())
    by_kind = {control.name.rsplit("/", 1)[1]: control for control in drawn}
    assert list(by_kind) == ["sinks", "text-heavy", "whole-layers", "random-4", "random-8", "all-heads"]
    assert by_kind["sinks"].heads == (Head(0, 0), Head(0, 1), Head(0, 2))
    assert by_kind["text-heavy"].heads == (Head(3, 5), Head(3, 6), Head(3, 7))
    assert len({h.layer for h in by_kind["whole-layers"]}) == 1 and len(by_kind["whole-layers"]) == 8
    assert by_kind["all-heads"].heads == GEOMETRY.all_heads()


def test_whole_layers_come_as_near_to_the_sets_size_as_layers_can() -> None:
    geometry = Geometry((32,) * 36)
    parent = make(*((layer, h) for layer in range(25) for h in range(4)), geometry=geometry)
    drawn = {c.name.rsplit("/", 1)[1]: c for c in draw_controls(parent, "damage", 1, seed=0)}
    assert len(drawn["whole-layers"]) == 96  # paper A, Table 12
    assert {len(drawn["random-200"]), len(drawn["random-400"])} == {200, 400}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: draw_controls(FOUND, "layr", 1, 0), "did you mean 'layer'"),
        (lambda: draw_controls(FOUND, "layer", -1, 0), "controls=-1"),
        (lambda: draw_controls(FOUND, "layer", 1, -2), "control_seed=-2"),
        (lambda: draw_controls(make(), "layer", 1, 0), "is empty"),
        (lambda: draw_controls(FOUND, "attention", 1, 0), "needs image_mass"),
        (lambda: draw_controls(FOUND, "low_score", 1, 0), "needs scores"),
        (lambda: draw_controls(FOUND, "low_score", 1, 0, facts=facts()), "5th percentile holds 0 heads, 3 are needed"),
        (
            lambda: draw_controls(make(*((0, h) for h in range(8))), "layer", 1, 0),
            "no 'layer' control differs from the set itself",
        ),
        (
            lambda: draw_controls(make(*((0, h) for h in range(5))), "layer", 1, 0, exclude_set=True),
            "layer 0 outside the set holds 3 heads, 5 are needed",
        ),
        (
            lambda: draw_controls(make(*((0, h) for h in range(5))), "attention", 1, 0, facts=facts()),
            "layer 0 outside the set holds 3 heads",
        ),
        (
            lambda: draw_controls(make(*GEOMETRY.all_heads()[:13]), "disjoint", 1, 0),
            "outside the set holds 11 heads, 13 are needed",
        ),
        (
            lambda: draw_controls(make((0, 0), geometry=Geometry((8,))), "kv_group", 1, 0),
            "key/value heads are unknown",
        ),
        (
            lambda: draw_controls(
                make((0, 0), (0, 1), (0, 2), (0, 4), (0, 5), (0, 6)), "kv_group", 1, 0, exclude_set=True
            ),
            "too small",
        ),
    ],
)
def test_errors_name_the_problem(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(HarnessHeadsError, match=re.escape(words)):
        call()


def table(*sets: HeadSet, **settings: object) -> SetTable:
    return set_table(sets, Settings(**settings), MODEL, GEOMETRY)  # type: ignore[arg-type]


def test_table_holds_the_empty_set_the_discovered_sets_and_their_draws() -> None:
    other = make((3, 1), (3, 2), name="other")
    made = table(FOUND, other, controls=5, control_family=("layer", "any"))
    assert len(made) == 1 + 2 + 2 * 2 * 5
    assert [e.heads.name for e in made.role("discovered")] == ["found", "other"]
    assert [e.draw for e in made.controls(FOUND.key, "any")] == list(range(5))
    assert {e.parent for e in made.role("control")} == {FOUND.key, other.key}
    again = set_table_from_list(made.to_list(), MODEL, GEOMETRY)
    assert [e.key for e in again] == [e.key for e in made]


def test_top_k_makes_subsets_with_controls_of_their_own() -> None:
    made = table(FOUND, top_k=(1, 2, 3), controls=2)
    subsets = made.role("subset")
    assert [len(e.heads) for e in subsets] == [1, 2]
    assert {e.parent for e in subsets} == {FOUND.key}
    assert [e.heads for e in made.role("discovered")] == [FOUND]
    assert all(len(c.heads) == 1 for c in made.controls(subsets[0].key))


def test_damage_has_its_own_role() -> None:
    made = table(FOUND, controls=1, control_family=("damage",))
    assert not made.role("control")
    assert [e.heads.name for e in made.role("damage")][-1] == "found/all-heads"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ((FOUND, make((2, 5), (0, 1), (0, 0), name="twin")), "'found' and 'twin' are the same heads"),
        ((make(),), "is empty"),
        ((HeadSet("far", ModelRef("other/model"), GEOMETRY, (Head(0, 0),)),), "is of other/model"),
        ((make((0, 0), geometry=Geometry((8, 8))),), "see check_model"),
    ],
)
def test_table_errors(sets: tuple[HeadSet, ...], words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        table(*sets)


def test_without_a_set_the_table_is_the_untouched_host() -> None:
    assert [e.role for e in table()] == ["empty"]
    with pytest.raises(HarnessHeadsError, match="head_set=none"):
        table(make(), controls=0)


def test_top_k_beyond_the_set_is_an_error() -> None:
    with pytest.raises(HarnessHeadsError, match="holds 3 heads; top_k=4"):
        table(FOUND, top_k=(4,))


def test_facts_travel_in_the_provenance() -> None:
    found = HeadSet("found", MODEL, GEOMETRY, FOUND.heads, provenance={"facts": facts().to_dict(GEOMETRY)})
    read = facts_of(found)
    assert read is not None
    assert read.image_mass == pytest.approx(facts().image_mass)
    assert draw_controls(found, "attention", 3, 0) == draw_controls(FOUND, "attention", 3, 0, facts=facts())
    assert facts_of(FOUND) is None


def test_facts_of_another_geometry_are_refused() -> None:
    with pytest.raises(HarnessHeadsError, match="does not fit the geometry"):
        facts_from_dict({"image_mass": [[0.1, 0.2]]}, GEOMETRY, "some file")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], r"some file: facts is \[\]; write an object"),
        ({"image_mas": []}, "unknown measure 'image_mas'; did you mean 'image_mass'"),
        ({"image_mass": 1}, "some file: facts.image_mass is 1; write a list"),
        ({"image_mass": [1, 2]}, r"facts.image_mass\[0\] is 1; write a list"),
        ({"image_mass": [[0.1, "x"]]}, r"facts.image_mass\[0\]\[1\] is 'x'; write a finite number"),
        ({"scores": [[0.1, float("nan")]]}, r"facts.scores\[0\]\[1\] is nan"),
    ],
)
def test_facts_that_are_none(value: object, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        facts_from_dict(value, Geometry((2,)), "some file")


def test_two_sets_of_one_name_are_refused() -> None:
    """Rows of the results table are keyed by name: one of the two would be gone without a word."""
    for names in (("same", "same"), ("a", "a/layer-1"), ("a", "empty")):
        pair = [make((0, 0), name=names[0]), make((0, 1), (2, 2), name=names[1])]
        with pytest.raises(HarnessHeadsError, match=f"2 sets of this run are called '{names[1]}'"):
            set_table(pair, Settings(controls=2), MODEL, GEOMETRY)
    assert len(set_table([make((0, 0), name="a"), make((0, 1), name="b")], Settings(controls=2), MODEL, GEOMETRY)) == 7
