"""Evidence: everything that runs left behind, as one frozen value that statistics, checklist and report read.

It holds log-probabilities and doses per item, never a summary: whatever the report says is computed from these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from harness_heads.conditions import Condition, condition_from_dict
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, HeadSet, ModelRef, SetEntry, SetTable, head_set_from_dict, set_table_from_list
from harness_heads.protocol.arrays import Floats, Ints, pack, unpack
from harness_heads.protocol.malformed import check_fields, readable
from harness_heads.protocol.plan import Plan, plan_from_dict

SCHEMA = 1
NO_CONDITION = "none"
_SHAPES: Mapping[str, tuple[type, ...]] = {
    "model": (Mapping,),
    **dict.fromkeys(("sets", "conditions"), (list,)),
    **dict.fromkeys(("settings", "sources", "versions", "expected_items"), (Mapping, NoneType)),
    "op": (str, NoneType),
    "plan": (str, Mapping, NoneType),
}
"""What a run block's fields are."""


@dataclass(frozen=True)
class RunInfo:
    """What a run says about itself: settings, model, both tables, versions.

    Attributes:
        value: the run's own JSON, as the first response of each rank carries it.
        sets: the head sets; identity digests were checked.
        sources: discovered sets with scores and provenance, by key.
        conditions: everything that was done.
        expected: items that each task was to answer, where run.json says so.
    """

    value: Mapping[str, Any]
    sets: SetTable
    sources: Mapping[str, HeadSet]
    conditions: tuple[Condition, ...]
    expected: Mapping[str, int] = field(default_factory=dict)

    @property
    def model(self) -> Mapping[str, Any]:
        """Model id, revision, dtype, attention, host, family, quantisation, geometry."""
        model: Mapping[str, Any] = self.value["model"]
        return model

    @property
    def settings(self) -> Mapping[str, Any]:
        """Model arguments with defaults filled in."""
        settings: Mapping[str, Any] = self.value.get("settings") or {}
        return settings

    @property
    def op(self) -> str:
        """mask, steer or ablate."""
        return str(self.value.get("op", ""))

    @property
    def geometry(self) -> Geometry:
        """Heads per layer."""
        return self.sets.baseline.heads.geometry

    @property
    def plan_digest(self) -> str | None:
        """Digest of the plan that the run was started with."""
        return self.value.get("plan")

    @property
    def tested(self) -> tuple[SetEntry, ...]:
        """Sets that are put to the test: discovered ones and their subsets."""
        return self.sets.role("discovered") + self.sets.role("subset")

    @property
    def digest(self) -> str:
        """Digest of what makes two ranks the same run (12 hex digits); the self-check's floats may differ by rank."""
        same = {k: self.value.get(k) for k in ("settings", "model", "sets", "conditions", "op", "plan", "seed")}
        return hashlib.sha256(canonical(same).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {**self.value, "expected_items": dict(self.expected)}


def run_info_from_dict(value: Mapping[str, Any], source: str) -> RunInfo:
    """Read a run's JSON; ``source`` names the file in errors.

    Raises:
        HarnessHeadsError: an unknown schema, a missing or malformed field, or sets that do not fit their digests.
    """
    if not isinstance(value, Mapping):
        raise HarnessHeadsError(f"{source}: the run block is no JSON object; it was cut off or edited")
    check_fields(value, _SHAPES, f"{source}: the run block")
    if value.get("schema", SCHEMA) != SCHEMA:
        raise HarnessHeadsError(f"{source}: run schema {value['schema']!r} is unknown, this version reads {SCHEMA}")
    with readable(f"{source}: the run block"):
        return _run_info(value, source)


def _run_info(value: Mapping[str, Any], source: str) -> RunInfo:
    model = value["model"]
    shape = model["geometry"]
    kv = shape.get("kv_heads")  # empty where the model side does not know them
    geometry = Geometry(tuple(shape["heads"]), tuple(kv) if kv else None)
    ref = ModelRef(model["id"], model.get("revision"))
    sets = set_table_from_list(value["sets"], ref, geometry)
    for row, entry in zip(value["sets"], sets, strict=True):
        if row.get("key", entry.key) != entry.key:
            raise HarnessHeadsError(f"{source}: set {row['name']!r} is keyed {row['key']}, its heads give {entry.key}")
    sources = {k: head_set_from_dict(v, f"{source}: source of {k}") for k, v in (value.get("sources") or {}).items()}
    for key, found in sources.items():
        if found.key != key:
            raise HarnessHeadsError(f"{source}: source {found.name!r} does not hold the heads of set {key}")
    conditions = tuple(condition_from_dict(c) for c in value["conditions"])
    expected = {str(k): int(v) for k, v in (value.get("expected_items") or {}).items()}
    kept = {k: v for k, v in value.items() if k not in ("expected_items", "tasks")}
    if isinstance(kept.get("plan"), Mapping):
        kept["plan"] = plan_from_dict(kept["plan"], source).digest
    return RunInfo(kept, sets, sources, conditions, expected)


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


def canonical(value: Any) -> str:
    """JSON text with sorted keys: equal values, equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
