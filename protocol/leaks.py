"""Leak audit item by item: which items of an audited task count, and what the most of a grid contrast is.

A task that is audited names its arms in every record (``extra["audit"]``): one in which the answer is in sight
(``seen``) and some in which it is not (``unseen``: a blank image, the right cell blanked in pixels). An item leaks if
an unseen arm gives its answer all the same; it is unanswered if the seen arm does not give it. Both are read from the
model without intervention, so that which items count depends on the model alone, never on the head sets under test.

A single item's P(c) cannot be "at chance", since a model prefers some letter where it knows nothing. The limit is
therefore one half, more than all other options together; it is this project's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness_heads.protocol.arrays import Floats, Ints
from harness_heads.protocol.effects import ArmLevel
from harness_heads.protocol.evidence import NO_CONDITION, Block, TaskEvidence
from harness_heads.protocol.runs import RunInfo
from harness_heads.protocol.scores import ScoreTable

LIMIT = 0.5
UNANSWERED = "unanswered"
SURPLUS = "not needed"
"""Reason of items that pass, but come after enough others with the same right letter."""


def audited(task: TaskEvidence) -> TaskEvidence:
    """The items that count, and under ``dropped`` the ids of all others by reason (``leaks: blank``, ...).

    Of the items that pass, the first of every right letter count, equally many a letter; what an audited task plans is
    that number. A task that is not audited, or that a stock model answered, is returned as it is.
    """
    rule = task.details[0]["extra"].get("audit") if task.n else None
    baseline = task.blocks.get(("blank", NO_CONDITION))
    if rule is None or baseline is None:
        return task
    (empty,) = baseline.sets  # an arm without condition is answered by the empty set alone
    reasons = np.full(task.n, "", dtype=object)
    for arm in (*rule["unseen"], rule["seen"]):
        p = _right(task, arm, empty)
        bad, why = (p <= LIMIT, UNANSWERED) if arm == rule["seen"] else (p > LIMIT, f"leaks: {arm}")
        reasons[bad & (reasons == "")] = why
    share = math.ceil(rule["keep"] / len(task.letters))
    letters = task.right("")
    for letter in range(len(task.letters)):
        passing = [i for i in np.argsort(task.index) if letters[i] == letter and not reasons[i]]
        reasons[passing[share:]] = SURPLUS
    # every reason, met or not: each rank of a run must name the same rows
    names = (*(f"leaks: {arm}" for arm in rule["unseen"]), UNANSWERED, SURPLUS)
    dropped = {name: tuple(i for i, why in zip(task.items, reasons, strict=True) if why == name) for name in names}
    return replace(_rows(task, np.flatnonzero(reasons == "")), n_planned=rule["keep"], dropped=dropped)


def ceilings(table: ScoreTable | None, levels: Sequence[ArmLevel], run: RunInfo) -> tuple[float, float]:
    """The most that NCS on the grid can be: with every head blind to the cell, and with the cell blanked in pixels.

    The second minus the first is what leaks to other tokens in the vision encoder. NaN where the run has no set of all
    heads, or the task no pixel arms.

    Args:
        table: the task's ``ncs_grid``.
        levels: its arms without intervention.
        run: its head sets.
    """
    whole = [entry.key for entry in run.sets if len(entry.heads) == run.geometry.total]
    here = [key for key in whole if table is not None and key in table.sets]
    blind = float(table.of(here[:1]).mean()) if table is not None and here else math.nan
    p: Mapping[str, float] = {level.arm: level.p for level in levels}
    return blind, p.get("pixels_distractor", math.nan) - p.get("pixels_correct", math.nan)


def _right(task: TaskEvidence, arm: str, empty: str) -> Floats:
    """P(c) of every item in an arm without intervention."""
    block = task.blocks[(arm, task.conditions(arm)[0])]
    logprobs = block.logprobs[:, block.sets.index(empty)]
    return np.asarray(np.exp(logprobs[np.arange(task.n), task.right(arm)]))


def _rows(task: TaskEvidence, kept: Ints) -> TaskEvidence:
    """The task with some of its items."""
    blocks = {
        cell: Block(b.sets, b.logprobs[kept], b.before[kept], b.after[kept], None if b.boxes is None else b.boxes[kept])
        for cell, b in task.blocks.items()
    }
    return replace(
        task,
        items=tuple(task.items[i] for i in kept),
        index=tuple(task.index[i] for i in kept),
        clusters=tuple(task.clusters[i] for i in kept),
        options=tuple(task.options[i] for i in kept),
        details=tuple(task.details[i] for i in kept),
        correct={arm: right[kept] for arm, right in task.correct.items()},
        distractor=task.distractor[kept],
        blocks=blocks,
        plain={arm: tuple(texts[i] for i in kept) for arm, texts in task.plain.items()},
    )
