"""Head, Geometry, HeadSet and SetTable: identity, files, and every way to name heads wrongly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import (
    Geometry,
    Head,
    HeadSet,
    ModelRef,
    SetEntry,
    SetTable,
    empty_set,
    head_set_from_dict,
    load_head_set,
    set_table_from_list,
)

MODEL = ModelRef("toy/model", "abc")
GEOMETRY = Geometry((4, 0, 6), (2, 0, 3))
FOUND = HeadSet("found", MODEL, GEOMETRY, (Head(2, 5), Head(0, 1), Head(0, 0)), (0.9, None, 0.1), {"kind": "made"})


def test_geometry_counts_softmax_heads() -> None:
    assert GEOMETRY.total == 10
    assert GEOMETRY.all_heads()[:5] == (Head(0, 0), Head(0, 1), Head(0, 2), Head(0, 3), Head(2, 0))
    assert [GEOMETRY.kv_group(Head(2, h)) for h in range(6)] == [0, 0, 1, 1, 2, 2]
    assert FOUND.per_layer == (2, 0, 1)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (Head(3, 0), "layer 3 is out of range, the model has layers 0..2"),
        (Head(-1, 0), "layer -1 is out of range"),
        (Head(1, 0), "layer 1 has no softmax attention heads"),
        (Head(0, 4), "head 4 is out of range, layer 0 has heads 0..3"),
        (Head(0, -1), "head -1 is out of range"),
    ],
)
def test_heads_outside_the_geometry(head: Head, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=f"head set 'mine': {words}"):
        HeadSet("mine", MODEL, GEOMETRY, (head,))


@pytest.mark.parametrize(
    ("heads", "kv", "words"),
    [
        ((4, -1), None, "layer 1 has -1 heads"),
        ((4, 2.0), None, "2.0 heads"),
        ((4, 4), (2,), "1 kv entries for 2 layers"),
    ],
)
def test_geometries_that_cannot_be(heads: tuple[Any, ...], kv: tuple[int, ...] | None, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        Geometry(heads, kv)


def test_kv_groups_need_kv_heads() -> None:
    with pytest.raises(HarnessHeadsError, match="key/value heads are unknown"):
        Geometry((4,)).kv_group(Head(0, 0))


def test_duplicates_and_missing_scores() -> None:
    with pytest.raises(HarnessHeadsError, match=r"L0\.1 is named 2 times"):
        HeadSet("mine", MODEL, GEOMETRY, (Head(0, 1), Head(0, 1)))
    with pytest.raises(HarnessHeadsError, match="1 scores for 2 heads"):
        HeadSet("mine", MODEL, GEOMETRY, (Head(0, 1), Head(0, 2)), (0.5,))
    assert HeadSet("mine", MODEL, GEOMETRY, (Head(0, 1),)).scores == (None,)


def test_identity_is_what_heads_of_which_model() -> None:
    same = HeadSet("other name", replace(MODEL, revision=None), Geometry((4, 0, 6)), tuple(sorted(FOUND.heads)))
    assert same.identity == FOUND.identity
    assert FOUND.key == FOUND.identity[:16]
    for other in (
        replace(FOUND, model=ModelRef("another/model")),
        replace(FOUND, geometry=Geometry((4, 0, 7))),
        FOUND.top(2),
    ):
        assert other.identity != FOUND.identity


@given(st.permutations(list(FOUND.heads)))
def test_order_does_not_change_the_identity(heads: list[Head]) -> None:
    assert replace(FOUND, heads=tuple(heads), scores=()).identity == FOUND.identity


def test_cutting() -> None:
    assert FOUND.top(2).heads == (Head(2, 5), Head(0, 1))
    assert FOUND.top(2).scores == (0.9, None)
    assert FOUND.top(3) is FOUND
    for k in (0, 4):
        with pytest.raises(HarnessHeadsError, match=f"holds 3 heads; top_k={k}"):
            FOUND.top(k)


def test_files_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "found.json"
    FOUND.save(path)
    read = load_head_set(path)
    assert read == FOUND and read.provenance == {"kind": "made"}
    empty_set(MODEL, GEOMETRY).save(path)
    assert len(load_head_set(path)) == 0


def edited(**changes: Any) -> Any:
    value = json.loads(json.dumps(FOUND.to_dict()))
    value.update(changes)
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1], "is a JSON object, this is a list"),
        ({"schema": 1}, "head set without 'name'"),
        (edited(schema=2), "schema 2 is unknown"),
        (edited(heads=[12.1]), "12.1 is no head"),
        (edited(heads=[[0, 1.0]]), "whole numbers"),
        (edited(heads=[[0, True]]), "whole numbers"),
        (edited(heads=[["0", 1]]), "whole numbers"),
        (edited(heads=[[0, 1, 0.5, 9]]), "is no head"),
        (edited(heads=[[0, 1], [0, 1]]), "named 2 times"),
        (edited(heads=[[1, 0]]), "no softmax attention heads"),
    ],
)
def test_values_that_are_no_head_set(value: Any, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        head_set_from_dict(value, "file.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="does not exist"):
        load_head_set(tmp_path / "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(HarnessHeadsError, match="is not JSON"):
        load_head_set(broken)


def table() -> SetTable:
    control = HeadSet("c", MODEL, GEOMETRY, (Head(0, 2),), provenance={"pool": 4, "overlap": 0, "kind": "control"})
    return SetTable(
        (
            SetEntry("empty", empty_set(MODEL, GEOMETRY)),
            SetEntry("discovered", FOUND),
            SetEntry("control", control, "layer", FOUND.key, 0, 7),
            SetEntry("control", control, "layer", FOUND.key, 1, 7),
            SetEntry("control", control, "any", FOUND.key, 0, 7),
        )
    )


def test_tables_select_and_read_back() -> None:
    made = table()
    assert made.baseline.heads.heads == ()
    assert len(made.controls(FOUND.key)) == 3 and len(made.controls(FOUND.key, "layer")) == 2
    rows = json.loads(json.dumps(made.to_list()))
    assert rows[2]["pool"] == 4 and rows[2]["overlap"] == 0 and "kind" not in rows[2]
    again = set_table_from_list(rows, MODEL, GEOMETRY)
    assert [e.key for e in again] == [e.key for e in made]
    assert again.to_list() == made.to_list()


def test_edited_tables_are_found_out() -> None:
    rows = table().to_list()
    rows[1]["heads"][0] = [2, 4]
    with pytest.raises(HarnessHeadsError, match="do not fit their digest"):
        set_table_from_list(rows, MODEL, GEOMETRY)


def test_a_table_has_one_baseline_and_no_set_twice() -> None:
    baseline = SetEntry("empty", empty_set(MODEL, GEOMETRY))
    found = SetEntry("discovered", FOUND)
    with pytest.raises(HarnessHeadsError, match="exactly one empty set"):
        SetTable((found,))
    with pytest.raises(HarnessHeadsError, match="is listed 2 times"):
        SetTable((baseline, found, found))
