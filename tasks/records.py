"""From the answers of an item's arms to its ItemRecord."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness_heads.probes import ItemRecord, probe_result_from_json
from harness_heads.tasks.items import Doc
from harness_heads.tasks.spec import TaskSpec


class Shown(NamedTuple):
    """What an arm showed: SHA-256 of every image, and the size of the first in pixels."""

    shas: list[str]
    size: tuple[int, int]


def item_record(
    doc: Doc, answers: Sequence[str], spec: TaskSpec, version: int, shown: Mapping[str, Shown]
) -> ItemRecord:
    """The record of one item.

    Args:
        doc: the document.
        answers: one response per arm, in the document's order: a ProbeResult as JSON, or a stock model's words.
        spec: the task.
        version: version of its recipe.
        shown: what was painted, per arm.
    """
    results: dict[str, Mapping[str, Any] | None] = {}
    plain: dict[str, str] = {}
    for arm, answer in zip(doc["arms"], answers, strict=True):
        results[arm] = None
        if probe_result_from_json(answer) is None:
            plain[arm] = answer
        else:
            results[arm] = json.loads(answer)
    extra = {**doc["extra"], "size": list(next(iter(shown.values())).size)}
    if spec.marks:
        extra["marks"] = list(spec.marks)
    return ItemRecord(
        doc["item"],
        spec.task,
        spec.recipe,
        version,
        spec.seed,
        doc["index"],
        spec.n,
        doc["cluster"],
        tuple(doc["options"]),
        tuple(doc["letters"]),
        doc["correct"],
        results,
        plain,
        {name: arm["probe"]["regions"] for name, arm in doc["arms"].items() if arm["probe"]["regions"]},
        {arm: what.shas for arm, what in shown.items()},
        extra,
    )
