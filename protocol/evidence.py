"""Evidence: everything that runs left behind, as one frozen value that statistics, checklist and report read.

It holds log-probabilities and doses per item, never a summary: whatever the report says is computed from these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.arrays import Floats, Ints, pack, unpack
from harness_heads.protocol.malformed import readable
from harness_heads.protocol.plan import Plan, plan_from_dict
from harness_heads.protocol.runs import RunInfo, canonical, run_info_from_dict

SCHEMA = 1
NO_CONDITION = "none"


@dataclass(frozen=True)
class Block:
    """Answers of one arm under one condition.

    Attributes:
        sets: set keys, in the columns' order; the empty set is among them.
        logprobs: natural log over the whole vocabulary, shape [N, sets, options]; no option axis for ``locate``.
        before, after: dose, shape [N, sets]; NaN where nothing was reported.
        boxes: predicted boxes in pixels, shape [N, sets, 4], NaN where unparsable; ``None`` unless the arm locates.
    """

    sets: tuple[str, ...]
    logprobs: Floats
    before: Floats
    after: Floats
    boxes: Floats | None = None

    def columns(self, keys: Sequence[str]) -> list[int]:
        """Column numbers of the named sets."""
        place = {key: i for i, key in enumerate(self.sets)}
        return [place[key] for key in keys]


@dataclass(frozen=True)
class TaskEvidence:
    """One task of one run; rows are items sorted by id, so that ranks and file order change nothing.

    Attributes:
        run: index into :attr:`Evidence.runs`; -1 where a stock model answered.
        items, index, clusters, options: per item: content hash, place in the task, cluster, option texts.
        correct: right option of each arm, shape [N]; -1 where an arm has none.
        distractor: option of the distractor's cell, shape [N]; -1 where there is none.
        blocks: ``(arm, condition) -> Block``.
        plain: answers of a stock model per arm.
        details: per item: regions, image hashes and extra facts, for the gallery and the audits.
        numerics: dtypes, kernels and the largest baseline gap that the answers reported.
        dropped: ids of items that a leak audit left out, by reason; they are in no other field.
    """

    run: int
    task: str
    recipe: str
    recipe_version: int
    seed: int
    n_planned: int
    letters: tuple[str, ...]
    items: tuple[str, ...]
    index: tuple[int, ...]
    clusters: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    correct: Mapping[str, Ints]
    distractor: Ints
    blocks: Mapping[tuple[str, str], Block]
    plain: Mapping[str, tuple[str, ...]]
    details: tuple[Mapping[str, Any], ...]
    numerics: Mapping[str, Any]
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.items)

    def conditions(self, arm: str) -> tuple[str, ...]:
        """Conditions of one arm, sorted."""
        return tuple(sorted(c for a, c in self.blocks if a == arm))

    @property
    def arms(self) -> tuple[str, ...]:
        """Arms with answers, in a fixed order."""
        return tuple(sorted({a for a, _ in self.blocks} | set(self.plain)))

    def right(self, arm: str) -> Ints:
        """Right option of ``arm`` per item."""
        return self.correct.get(arm, self.correct[""])


@dataclass(frozen=True)
class Evidence:
    """Everything that a report is about.

    Attributes:
        runs: the runs, sorted by what they are.
        tasks: their tasks, sorted by (run, task).
        plan: the plan they were started with, where its content is at hand.
        notes: what was found on reading that does not stop a report, one line each.
        discovery: declared discovery folders' own JSON, by setting.
        pictures: data URIs by image hash, for the gallery where they are at hand; no part of the evidence proper.
    """

    runs: tuple[RunInfo, ...]
    tasks: tuple[TaskEvidence, ...]
    plan: Plan | None = None
    notes: tuple[str, ...] = ()
    discovery: tuple[Mapping[str, Any], ...] = ()
    pictures: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def exploratory(self) -> bool:
        """True unless every run was started with one plan whose content is known."""
        # a fan made by hand declares no plan: its tests are exploratory whatever the other runs carry
        own = [run for run in self.runs if run.plan_digest is not None or not run.value.get("fan")]
        return self.plan is None or not own or any(run.plan_digest != self.plan.digest for run in own)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole evidence, 16 hex digits."""
        return hashlib.sha256(canonical(self.to_dict()).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value; :func:`evidence_from_dict` reads it back bit by bit."""
        return {
            "schema": SCHEMA,
            "runs": [run.to_dict() for run in self.runs],
            "tasks": [_task_to_dict(task) for task in self.tasks],
            "plan": None if self.plan is None else self.plan.to_dict(),
            "notes": list(self.notes),
            "discovery": [dict(d) for d in self.discovery],
        }


def evidence_from_dict(value: Mapping[str, Any]) -> Evidence:
    """Read what :meth:`Evidence.to_dict` wrote."""
    if not isinstance(value, Mapping) or value.get("schema") != SCHEMA:
        held = value.get("schema") if isinstance(value, Mapping) else value
        raise HarnessHeadsError(f"evidence: schema {held!r} is unknown, this version reads {SCHEMA}")
    with readable("evidence"):
        return Evidence(
            tuple(run_info_from_dict(run, "evidence") for run in value["runs"]),
            tuple(_task_from_dict(task) for task in value["tasks"]),
            None if value["plan"] is None else plan_from_dict(value["plan"], "evidence"),
            tuple(value["notes"]),
            tuple(value["discovery"]),
        )


def load_evidence(paths: Sequence[Path], plan: Path | None = None) -> Evidence:
    """Read run folders (and declared discovery folders), check them against each other, and merge them.

    Args:
        paths: run folders, discovery folders, or single samples files, in any order.
        plan: plan file, where the run folder does not hold the plan's content.

    Raises:
        HarnessHeadsError: one line naming the file and the first thing that is wrong.
    """
    from harness_heads.protocol.loading import read_all  # loading builds these values, so it imports this module

    return read_all(paths, plan)


def _task_to_dict(task: TaskEvidence) -> dict[str, Any]:
    blocks = []
    for (arm, condition), block in sorted(task.blocks.items()):
        row: dict[str, Any] = {"arm": arm, "condition": condition, "sets": list(block.sets)}
        row["logprobs"] = pack(block.logprobs)
        row |= {"before": pack(block.before), "after": pack(block.after)}
        row["boxes"] = None if block.boxes is None else pack(block.boxes)
        blocks.append(row)
    plain = {arm: list(texts) for arm, texts in task.plain.items()}
    return {
        **{k: getattr(task, k) for k in ("run", "task", "recipe", "recipe_version", "seed", "n_planned")},
        **{k: list(getattr(task, k)) for k in ("letters", "items", "index", "clusters")},
        "options": [list(o) for o in task.options],
        "correct": {arm: pack(v) for arm, v in sorted(task.correct.items())},
        "distractor": pack(task.distractor),
        "blocks": blocks,
        "plain": plain,
        "details": [dict(d) for d in task.details],
        "numerics": dict(task.numerics),
        **({"dropped": {k: list(v) for k, v in task.dropped.items()}} if task.dropped else {}),
    }


def _task_from_dict(value: Mapping[str, Any]) -> TaskEvidence:
    blocks = {}
    for row in value["blocks"]:
        boxes = None if row["boxes"] is None else unpack(row["boxes"])
        arrays = (unpack(row["logprobs"]), unpack(row["before"]), unpack(row["after"]))
        blocks[(row["arm"], row["condition"])] = Block(tuple(row["sets"]), *arrays, boxes)
    whole: dict[str, Any] = {k: value[k] for k in ("run", "task", "recipe", "recipe_version", "seed", "n_planned")}
    whole |= {k: tuple(value[k]) for k in ("letters", "items", "index", "clusters")}
    return TaskEvidence(
        **whole,
        options=tuple(tuple(o) for o in value["options"]),
        correct={arm: unpack(v).astype(np.int64) for arm, v in value["correct"].items()},
        distractor=unpack(value["distractor"]).astype(np.int64),
        blocks=blocks,
        plain={arm: tuple(texts) for arm, texts in value["plain"].items()},
        details=tuple(value["details"]),
        numerics=value["numerics"],
        dropped={k: tuple(v) for k, v in value.get("dropped", {}).items()},
    )
