"""From the answers of an item's arms to its ItemRecord."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness_heads.probes import ItemRecord, probe_result_from_json
from harness_heads.tasks.items import Doc
from harness_heads.tasks.spec import TaskSpec


def item_record(
    doc: Doc, answers: Sequence[str], spec: TaskSpec, version: int, images: Mapping[str, list[str]]
) -> ItemRecord:
    """The record of one item.

    Args:
        doc: the document.
        answers: one response per arm, in the document's order: a ProbeResult as JSON, or a stock model's words.
        spec: the task.
        version: version of its recipe.
        images: SHA-256 of the painted images, per arm.
    """
    results: dict[str, Mapping[str, Any] | None] = {}
    plain: dict[str, str] = {}
    for arm, answer in zip(doc["arms"], answers, strict=True):
        results[arm] = None
        if probe_result_from_json(answer) is None:
            plain[arm] = answer
        else:
            results[arm] = json.loads(answer)
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
        dict(images),
        {**doc["extra"], **({"marks": list(spec.marks)} if spec.marks else {})},
    )
