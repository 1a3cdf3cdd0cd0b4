"""Head, Geometry, HeadSet and SetTable: identity, files, and every way to name heads wrongly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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
        ((4, 4), (2, 0), "layer 1 has 4 heads and 0 key/value heads"),
        ((4, 4), (2, 3), "a whole number that divides its heads"),
        ((4, 4), (2, 2.0), "layer 1 has 4 heads and 2.0 key/value heads"),
        ("44", None, "layer 0 has '4' heads"),
    ],
)
def test_geometries_that_cannot_be(heads: tuple[Any, ...], kv: tuple[int, ...] | None, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        Geometry(heads, kv)


def test_kv_groups_need_kv_heads() -> None:
    with pytest.raises(HarnessHeadsError, match="key/value heads are unknown"):
        Geometry((4,)).kv_group(Head(0, 0))


@pytest.mark.parametrize("head", [(0.5, 1), (0, True), ("0", "1"), "01", 3, (0,), (0, 1, 2), Head(0, 1.0)])  # type: ignore[arg-type]
def test_heads_are_pairs_of_whole_numbers(head: Any) -> None:
    with pytest.raises(HarnessHeadsError, match=r"is no head; give \(layer, head\), two whole numbers"):
        HeadSet("mine", MODEL, GEOMETRY, (head,))
    with pytest.raises(HarnessHeadsError, match=r"'mine': .* is no head"):
        GEOMETRY.check(head, "mine")


def test_numpys_whole_numbers_become_ours() -> None:
    pair: Any = (np.int64(0), np.int32(1))
    made = HeadSet("mine", MODEL, GEOMETRY, (pair,))
    assert made.heads == (Head(0, 1),) and type(made.heads[0].layer) is int
    assert made.identity == HeadSet("mine", MODEL, GEOMETRY, (Head(0, 1),)).identity


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "0.5", True, 10**400])
def test_scores_are_finite_numbers(score: Any) -> None:
    with pytest.raises(HarnessHeadsError, match=r"L0\.1 has score .*; give a finite number or null"):
        HeadSet("mine", MODEL, GEOMETRY, (Head(0, 1),), (score,))


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
    wrong: list[Any] = [0, 4, 1.5, True, "2"]
    for k in wrong:
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
        (edited(heads=[[1, 0]]), "file.json: .*no softmax attention heads"),
        (edited(heads=None), "file.json: heads is None; write a list"),
        (edited(heads="012"), "file.json: heads is '012'; write a list"),
        (edited(heads={"0": 1}), "file.json: heads is .*; write a list"),
        (edited(heads=[[0, 1, "best"]]), r"file.json: score of heads\[0\] is 'best'; write a finite number"),
        (edited(heads=[[0, 1, float("nan")]]), r"score of heads\[0\] is nan"),
        (edited(heads=[[0, 1, float("inf")]]), r"score of heads\[0\] is inf"),
        (edited(heads=[[0, 1, False]]), r"score of heads\[0\] is False"),
        (edited(geometry=[4, 0, 6]), r"file.json: geometry is \[4, 0, 6\]; write an object"),
        (edited(geometry={}), "file.json: geometry.heads is None; write a list"),
        (edited(geometry={"heads": []}), "file.json: geometry.heads is empty"),
        (edited(geometry={"heads": "406"}), "file.json: geometry.heads is '406'"),
        (edited(geometry={"heads": [4, 0, "6"]}), "file.json: geometry: layer 2 has '6' heads"),
        (edited(geometry={"heads": [4, 0, 6], "kv_heads": 2}), "file.json: geometry.kv_heads is 2; write a list"),
        (edited(geometry={"heads": [4, 0, 6], "kv_heads": [2, 0, None]}), "file.json: geometry: layer 2 has 6 heads"),
        (edited(model="toy/model"), "file.json: model is 'toy/model'; write an object"),
        (edited(model={}), "file.json: model.id is None; write a text"),
        (edited(model={"id": "toy", "revision": 3}), "file.json: model.revision is 3; write a text"),
        (edited(name=3), "file.json: name is 3; write a text"),
        (edited(name="two\nlines"), "file.json: name is .*on one line"),
        (edited(name=" "), "file.json: name is ' '"),
        (edited(provenance=None), "file.json: provenance is None; write an object"),
        (edited(schema=True), "schema True is unknown"),
        (edited(schema=[1]), r"schema \[1\] is unknown"),
    ],
)
def test_values_that_are_no_head_set(value: Any, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        head_set_from_dict(value, "file.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["schema", "name", "model", "geometry", "heads", "provenance", "model.id", "geometry.kv"]), JSON)
def test_whatever_json_a_file_holds_only_our_error_comes_out(where: str, junk: Any) -> None:
    value = edited()
    if where == "model.id":
        value["model"]["id"] = junk
    elif where == "geometry.kv":
        value["geometry"]["kv_heads"] = junk
    else:
        value[where] = junk
    try:
        made = head_set_from_dict(json.loads(json.dumps(value)), "file.json")
    except HarnessHeadsError as error:
        assert str(error).startswith("file.json: ") and len(str(error).splitlines()) == 1
    else:
        assert made.key and head_set_from_dict(made.to_dict(), "again") == made


@given(st.dictionaries(st.sampled_from(sorted({"schema", "name", "model", "geometry", "heads"})), JSON) | JSON)
def test_whatever_json_is_a_file_only_our_error_comes_out(value: Any) -> None:
    with pytest.raises(HarnessHeadsError, match=r"file\.json: "):
        head_set_from_dict(value, "file.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for content, words in (
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b"9" * 5000, "is not JSON"),
        (b'{"name": "a", "name": "b"}', "key 'name' is written twice"),
    ):
        (tmp_path / "odd.json").write_bytes(content)
        with pytest.raises(HarnessHeadsError, match=f"odd.json.*{words}"):
            load_head_set(tmp_path / "odd.json")
    with pytest.raises(HarnessHeadsError, match="cannot be read"):
        load_head_set(tmp_path)
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"identity": None}, "do not fit their digest"),
        ({"name": 3}, "row 1: name is 3"),
        ({"heads": None}, "row 1: heads is None"),
        ({"heads": [[0]]}, "is no head"),
        ({"role": []}, "row 1: role is"),
        ({"parent": 7}, "row 1: parent is 7"),
    ],
)
def test_damaged_tables_are_one_error(change: dict[str, Any], words: str) -> None:
    rows = table().to_list()
    rows[1].update(change)
    with pytest.raises(HarnessHeadsError, match=words):
        set_table_from_list(rows, MODEL, GEOMETRY)
    del rows[1]["draw"]
    with pytest.raises(HarnessHeadsError, match="row 1 has no 'draw'"):
        set_table_from_list(rows, MODEL, GEOMETRY)


def test_a_table_has_one_baseline_and_no_set_twice() -> None:
    baseline = SetEntry("empty", empty_set(MODEL, GEOMETRY))
    found = SetEntry("discovered", FOUND)
    with pytest.raises(HarnessHeadsError, match="exactly one empty set"):
        SetTable((found,))
    with pytest.raises(HarnessHeadsError, match="is listed 2 times"):
        SetTable((baseline, found, found))
