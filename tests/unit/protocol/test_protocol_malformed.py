"""Files that were cut off or edited: one sentence that names file and item, whatever the value is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn

from harness_heads.cli import run
from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.analysis import analyse
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.report import compose, read_report

WORLD = syn.World(items=4, controls=3)
WRONG: tuple[Any, ...] = (None, [], "x", 3, {"a": None}, True)
KEEP = object()


def refused(folder: Path, *parts: str) -> None:
    """Reading ends in our error, in one line, with these parts."""
    with pytest.raises(HarnessHeadsError) as caught:
        load_evidence([folder])
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, one of a kind in each list and table of sets."""
    out: list[tuple[Any, ...]] = [prefix] if prefix else []
    if isinstance(value, dict):
        for key in value:
            out += paths(value[key], (*prefix, key))
    elif isinstance(value, list) and value:
        out += paths(value[0], (*prefix, 0))
    return out


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    if new is KEEP:
        del value[path[-1]]
    else:
        value[path[-1]] = new


def test_null_arms_name_file_and_item(tmp_path: Path) -> None:
    item = ""

    def edit(records: list[dict[str, Any]]) -> None:
        nonlocal item
        records[2]["arms"] = None
        item = records[2]["item"]

    folder = syn.write_ncs(tmp_path, WORLD, edit=edit)
    refused(folder, "samples of ncs_digits: line 3", item, "'arms' is null", "a JSON object")


@pytest.mark.parametrize(
    ("name", "wrong", "part"),
    [
        ("arms", KEEP, "has no 'arms'"),
        ("arms", {"matched": 3}, "arms: 'matched' is 3"),
        ("regions", None, "'regions' is null"),
        ("index", "x", "'index' is \"x\""),
        ("n_planned", True, "'n_planned' is true"),
        ("correct", 7, "option 7 of 4 letters"),
        ("letters", "ABCD", "it must be a list"),
    ],
)
def test_fields_of_a_record(tmp_path: Path, name: str, wrong: Any, part: str) -> None:
    folder = syn.write_ncs(tmp_path, WORLD, edit=lambda records: put(records[1], (name,), wrong))
    refused(folder, "samples of ncs_digits: line 2", part)


@pytest.mark.parametrize("write", [syn.write_ncs, syn.write_cers], ids=["ncs", "cers"])
def test_no_wrong_value_of_a_record_is_a_traceback(write: Callable[..., Path], tmp_path: Path) -> None:
    """Every place of a record, a wrong value at each: read, or refused in our words."""
    folder = write(tmp_path, WORLD)
    file = syn.samples_file(folder)
    lines = file.read_text(encoding="utf-8").splitlines()
    places = [p for p in paths(json.loads(lines[0])["record"]) if "sources" not in p]
    assert len(places) > 100
    wrong = []
    for number, place in enumerate(places):
        value = json.loads(lines[0])
        put(value["record"], place, WRONG[number % len(WRONG)])
        file.write_text("\n".join([json.dumps(value), *lines[1:]]) + "\n", encoding="utf-8")
        try:
            compose(analyse(load_evidence([folder]), 2))
        except HarnessHeadsError as error:
            assert "\n" not in str(error), place
        except Exception as error:
            wrong.append(f"{place}: {error!r}")
    assert wrong == []


@pytest.mark.parametrize("name", ["model", "sets", "conditions", "settings", "op", "sources", "expected_items", "plan"])
@pytest.mark.parametrize("wrong", [3, "x", [3], {"a": [None]}], ids=["number", "text", "list", "object"])
def test_fields_of_run_json(tmp_path: Path, name: str, wrong: Any) -> None:
    """run.json speaks where no record carries the run: a wrong field is named, or means nothing."""

    def edit(records: list[dict[str, Any]]) -> None:
        for record in records:
            for answer in record["arms"].values():
                answer.pop("run", None)

    folder = syn.write_ncs(tmp_path, WORLD, edit=edit, run_json={name: wrong})
    if (name, wrong) in (("op", "x"), ("plan", "x"), ("settings", {"a": [None]})):
        load_evidence([folder])
    else:
        refused(folder, "run.json")


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"model": ', "\x00"])
def test_a_run_json_that_is_none(tmp_path: Path, text: str) -> None:
    folder = syn.write_ncs(tmp_path, WORLD, run_json={})
    (folder / "run.json").write_text(text, encoding="utf-8")
    refused(folder, "run.json")


@pytest.mark.parametrize("text", ["{", "[]", '{"n-samples": {"ncs_digits": {"effective": "many"}}}'])
def test_results_beside_the_samples(tmp_path: Path, text: str) -> None:
    folder = syn.write_ncs(tmp_path, WORLD)
    next(folder.rglob("*_results.json")).write_text(text, encoding="utf-8")
    refused(folder, "results.json")


def test_a_report_whose_evidence_was_edited(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    for evidence in (None, [], {}, {"schema": 1}, {"schema": 1, "runs": [None]}):
        file.write_text(json.dumps({"schema": 1, "evidence": evidence}), encoding="utf-8")
        with pytest.raises(HarnessHeadsError, match="evidence"):
            read_report(file)


def test_discovery_folders_that_were_cut_off(tmp_path: Path) -> None:
    run = syn.write_ncs(tmp_path / "run", WORLD)
    first, second = syn.write_discoveries(tmp_path / "d", WORLD)
    (first / "scores.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(HarnessHeadsError, match=r"scores\.safetensors"):
        load_evidence([run, first])
    (second / "head_set.json").write_text("{", encoding="utf-8")
    with pytest.raises(HarnessHeadsError, match=r"head_set\.json"):
        load_evidence([run, second])


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"schema": 1, "labels": null, "tasks": [], "plan": {}}'])
def test_a_fan_file_that_was_cut_off(tmp_path: Path, text: str) -> None:
    from test_protocol_run import answer, planned

    folders = planned(tmp_path)
    for folder in folders:
        answer(folder, [1, 0])
    (folders[0].parent / "fan.json").write_text(text, encoding="utf-8")
    refused(tmp_path, "fan.json")


@pytest.mark.parametrize("line", ["3", "{", '{"exact_match": 1}', '{"doc_id": "x", "exact_match": 1}'])
def test_a_line_of_a_fan_that_was_cut_off(tmp_path: Path, line: str) -> None:
    from test_protocol_run import answer, planned

    folders = planned(tmp_path)
    for folder in folders:
        answer(folder, [1, 0])
    file = next(folders[3].rglob("*.jsonl"))
    file.write_text(file.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    refused(tmp_path, "fan, task mmstar, layer-1: line 3")


def test_results_that_were_cut_off_are_no_finished_run(tmp_path: Path) -> None:
    results = tmp_path / "20261201_results.json"
    for text, finished in (("{", False), ("[]", False), ('{"results": null}', False), ('{"results": {"a": 1}}', True)):
        results.write_text(text, encoding="utf-8")
        assert run._finished(tmp_path, ["a"]) is finished
