"""Grounding: every answer is correct, mislocated or unparsable, against a box (IoU of at least .5) or a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import synthetic as syn

from harness_heads.conditions import Condition
from harness_heads.probes import ItemRecord, ProbeResult
from harness_heads.protocol.records import read_records
from harness_heads.protocol.runs import run_info_from_dict
from harness_heads.protocol.scores import score_tables

WORLD = syn.World(controls=0, effects={"dg-ref-qsp": 0.0})
SETS = syn.table(WORLD)
CONDITION = Condition("ablate")
EMPTY = SETS.baseline.key
[TESTED] = [entry.key for entry in SETS.role("discovered")]
GOLD = [0.0, 0.0, 100.0, 100.0]


def values(answers: list[tuple[Any, Any]], region: dict[str, Any]) -> dict[str, list[float]]:
    """Score -> one value an item, from each item's answer of the empty set and of the tested one."""
    records = []
    for i, (base, under) in enumerate(answers):
        result = ProbeResult(boxes={CONDITION.name: {EMPTY: base, TESTED: under}})
        arms = {"locate": {k: v for k, v in vars(result).items() if v not in ({}, (), None)} | {"schema": 1}}
        regions = {"locate": region}
        records.append(
            ItemRecord(f"i{i}", "t", "grounding", 1, 0, i, 4, f"c{i}", (), (), None, arms, {}, regions, {}, {})
        )
    task = read_records(records, "t").finish(0)
    run = run_info_from_dict(syn.run_block(WORLD, SETS, "ablate", [CONDITION]), "t")
    return {t.score: t.of([TESTED])[:, 0].tolist() for t in score_tables(task, run)}


def test_boxes_are_correct_mislocated_or_unparsable() -> None:
    half, less = [0.0, 0.0, 50.0, 100.0], [0.0, 0.0, 49.0, 100.0]
    answers = [(GOLD, half), (GOLD, less), (GOLD, None), (None, GOLD)]
    found = values(answers, {"gold": {"boxes": [GOLD], "image": 0}})
    assert found["grounding_drop"] == [0.0, 1.0, 1.0, -1.0]
    assert found["mislocated"] == [0.0, 1.0, 0.0, 0.0]
    assert found["unparsable"] == [0.0, 0.0, 1.0, 0.0]
    correct = np.array([1.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(correct + found["mislocated"] + found["unparsable"], 1.0)


@pytest.mark.parametrize(("point", "right"), [([5.0, 5.0], True), ([25.0, 5.0], True), ([15.0, 5.0], False)])
def test_points_are_right_inside_the_mask_not_inside_its_box(point: list[float], right: bool) -> None:
    mask = {"mask": {"boxes": [[0.0, 0.0, 10.0, 10.0], [20.0, 0.0, 30.0, 10.0]], "image": 0}}
    box = [*point, *point]
    found = values([(box, box), (box, None)], mask)
    assert found["grounding_drop"] == [0.0, float(right)]
    assert found["mislocated"] == [float(not right), 0.0]
    assert found["unparsable"] == [0.0, 1.0]
