"""Leak audit item by item: what leaks is dropped, named and counted, whatever the head sets under test did."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic as syn

from harness_heads.probes import item_record_from_dict
from harness_heads.protocol.analysis import analyse
from harness_heads.protocol.evidence import TaskEvidence, evidence_from_dict, load_evidence
from harness_heads.protocol.leaks import SURPLUS, UNANSWERED
from harness_heads.protocol.report import write_report
from harness_heads.protocol.sections.arms import arms_section
from harness_heads.protocol.summary import task_summary

WORLD = syn.World(items=16, controls=2)
RULE = {"keep": 8, "seen": "oracle", "unseen": ["blank"]}
LEAKING, UNKNOWN = 3, 5


def give(record: dict[str, Any], arm: str, p: float, only_tested: bool = False) -> None:
    """Sets P(c) of an arm: of its baseline alone, or of every other set."""
    right, letters = record["correct"], record["letters"]
    for by_set in record["arms"][arm]["logprobs"].values():
        for key, options in by_set.items():
            if (key != BASELINE) == only_tested:
                options.update({c: math.log(p if i == right else (1 - p) / 3) for i, c in enumerate(letters)})


BASELINE = syn.table(WORLD).baseline.key


def edited(records: list[dict[str, Any]], other_sets: bool = False) -> None:
    for record in records:
        record["extra"]["audit"] = RULE
        if other_sets:
            give(record, "oracle", 0.01, only_tested=True)
    give(records[LEAKING], "blank", 0.6)
    give(records[UNKNOWN], "oracle", 0.3)


def audited_task(folder: Path, **how: Any) -> TaskEvidence:
    def edit(records: list[dict[str, Any]]) -> None:
        edited(records, **how)

    [task] = load_evidence([syn.write_grid_ncs(folder, WORLD, edit=edit)]).tasks
    return task


def test_items_that_leak_are_dropped_named_and_counted(tmp_path: Path) -> None:
    task = audited_task(tmp_path / "a")
    [whole] = load_evidence([syn.write_grid_ncs(tmp_path / "b", WORLD)]).tasks
    by_index = dict(zip(whole.index, whole.items, strict=True))
    assert task.dropped["leaks: blank"] == (by_index[LEAKING],)
    assert task.dropped[UNANSWERED] == (by_index[UNKNOWN],)
    assert (task.n, task.n_planned, len(task.dropped[SURPLUS])) == (8, 8, 6)
    assert set(task.items).isdisjoint(i for items in task.dropped.values() for i in items)
    assert set(task.items) | {i for items in task.dropped.values() for i in items} == set(whole.items)
    # item 3 of letter D and item 5 of letter B are replaced by the next of their letter
    assert sorted(task.index) == [0, 1, 2, 4, 6, 7, 9, 11]
    assert Counter(task.right("").tolist()) == dict.fromkeys(range(4), 2)
    for name in ("clusters", "options", "details"):
        assert len(getattr(task, name)) == 8
    for block in task.blocks.values():
        assert block.logprobs.shape[0] == block.before.shape[0] == 8


def test_which_items_count_does_not_depend_on_the_sets_under_test(tmp_path: Path) -> None:
    one, two = audited_task(tmp_path / "a"), audited_task(tmp_path / "b", other_sets=True)
    assert one.items == two.items and one.dropped == two.dropped
    cell = ("oracle", "mask:correct")
    assert not np.array_equal(one.blocks[cell].logprobs, two.blocks[cell].logprobs)


def test_a_task_that_is_not_audited_keeps_every_item(tmp_path: Path) -> None:
    [task] = load_evidence([syn.write_grid_ncs(tmp_path / "a", WORLD)]).tasks
    assert task.n == task.n_planned == 16 and not task.dropped


def test_too_few_items_are_fewer_than_planned(tmp_path: Path) -> None:
    def edit(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["extra"]["audit"] = RULE
            if record["correct"] == 0:
                give(record, "blank", 0.9)

    evidence = load_evidence([syn.write_grid_ncs(tmp_path / "a", WORLD, edit=edit)])
    [task] = evidence.tasks
    assert (task.n, task.n_planned, len(task.dropped["leaks: blank"])) == (6, 8, 4)


def test_evidence_keeps_what_was_dropped_and_the_report_shows_it(tmp_path: Path) -> None:
    def edit(records: list[dict[str, Any]]) -> None:
        edited(records)

    evidence = load_evidence([syn.write_grid_ncs(tmp_path / "a", WORLD, edit=edit)])
    again = evidence_from_dict(evidence.to_dict())
    assert again.digest == evidence.digest and again.tasks[0].dropped == evidence.tasks[0].dropped
    [table] = [t for t in arms_section(analyse(evidence)).tables if t.id == "leaks"]
    rows = {row[3].text: [cell.text for cell in row] for row in table.rows}
    assert rows["leaks: blank"][1:5] == ["16", "8", "leaks: blank", "1"]
    assert rows["leaks: blank"][5] == evidence.tasks[0].dropped["leaks: blank"][0]
    assert rows[UNANSWERED][4] == "1" and rows[SURPLUS][4] == "6"


@pytest.mark.filterwarnings("error")
def test_a_task_of_which_no_item_counts_is_not_estimable(tmp_path: Path) -> None:
    def edit(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["extra"]["audit"] = RULE
            give(record, "blank", 0.9)

    folder = syn.write_grid_ncs(tmp_path / "a", WORLD, edit=edit)
    evidence = load_evidence([folder])
    assert (evidence.tasks[0].n, evidence.tasks[0].n_planned) == (0, 8)
    analysis = analyse(evidence)
    assert all(math.isnan(e.mean) for e in analysis.tasks[0].effects)
    assert all(math.isnan(t.p) for t in analysis.tests)
    write_report(evidence, tmp_path / "report", resamples=10)
    lines = syn.samples_file(folder).read_text(encoding="utf-8").splitlines()
    summary = task_summary([item_record_from_dict(json.loads(line)["record"]) for line in lines])
    assert summary["n"] == 0.0 and summary["left out: leaks: blank"] == 16.0
    assert math.isnan(float(summary["P_blank"]))


@pytest.mark.parametrize("p", [0.5, 0.51])
def test_the_limit_is_more_than_one_half(p: float, tmp_path: Path) -> None:
    def edit(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["extra"]["audit"] = RULE
        give(records[0], "blank", p)

    [task] = load_evidence([syn.write_grid_ncs(tmp_path / "a", WORLD, edit=edit)]).tasks
    assert len(task.dropped["leaks: blank"]) == (p > 0.5)
