"""What evidence must satisfy before anything is computed from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.evidence import NO_CONDITION, TaskEvidence
from harness_heads.protocol.runs import RunInfo, canonical

KNOWN_VERSIONS = {"mcq_matched_mismatched": 1, "grid_2x2": 1}
"""Recipe versions whose arms and fields this code reads; other recipes are read by their arms alone."""

BASELINE_GAP = {"float32": 1e-3, "float64": 1e-3}
"""Largest difference of baseline log-probabilities between conditions or runs; low-precision kernels get more."""
LOW_PRECISION_GAP = 0.25
_VOLATILE = ("journal", "plan", "condition_batch", "verify")


def run_digest(run: RunInfo) -> str:
    """Digest of what makes two answers the same run. Conditions differ by task, the self-check's floats by rank."""
    settings = {k: v for k, v in run.settings.items() if k not in _VOLATILE}
    same = {k: run.value.get(k) for k in ("model", "sets", "op", "plan", "seed")}
    return hashlib.sha256(canonical([settings, same]).encode()).hexdigest()[:12]


def united(a: RunInfo, b: RunInfo) -> RunInfo:
    """One run of two tasks: their conditions together."""
    conditions = {c.name: c for c in (*a.conditions, *b.conditions)}
    ordered = tuple(conditions[name] for name in sorted(conditions))
    value = {**a.value, "conditions": [c.to_dict() for c in ordered]}
    return replace(a, value=value, conditions=ordered, expected={**a.expected, **b.expected})


def complete(task: TaskEvidence, asked: int | None, torn: bool, where: str, notes: list[str]) -> None:
    """Every expected item is there, or the gap is explained by a torn line or a smaller document count.

    Args:
        asked: items that the run was to answer, ``None`` where neither run.json nor the results file says so.
    """
    planned = task.n_planned
    expected = planned if asked is None else asked
    here = set(task.index)
    missing = sorted(set(range(max(expected, max(here, default=-1) + 1))) - here)
    if expected > planned:
        raise HarnessHeadsError(f"{where}: the run was to answer {expected} items, the task plans {planned}")
    if len(missing) <= int(torn):
        if expected < planned:
            notes.append(f"task {task.task}: {expected} of {planned} planned items were asked for")
        return
    prefix = missing == list(range(len(here), len(here) + len(missing)))
    if prefix and asked is None:
        notes.append(f"task {task.task}: {task.n} of {planned} planned items were asked for")
        return
    verb = "is" if len(missing) == 1 else "are"
    named = ", ".join(str(i) for i in missing[:4]) + (", ..." if len(missing) > 4 else "")
    raise HarnessHeadsError(
        f"{where}: {len(missing)} of {expected} items {verb} missing (numbers {named}){_rank(missing, expected)}; "
        "run again with the same journal"
    )


def _rank(missing: Sequence[int], expected: int) -> str:
    """Name the rank whose every item is missing, if that is the pattern."""
    for world in range(2, min(64, expected // 2) + 1):  # one lost item is no lost rank
        ranks = {i % world for i in missing}
        if len(ranks) < world and len(missing) == sum(len(range(r, expected, world)) for r in ranks):
            named = ", ".join(str(r) for r in sorted(ranks))
            return f": rank {named} of {world} did not deliver"
    return ""


def known_version(task: TaskEvidence, where: str) -> None:
    """Refuse records of a recipe version whose fields may mean something else."""
    known = KNOWN_VERSIONS.get(task.recipe)
    if known is not None and task.recipe_version != known:
        raise HarnessHeadsError(
            f"{where}: recipe {task.recipe} version {task.recipe_version}, this version reads {known}; run it again"
        )


def one_baseline(task: TaskEvidence, run: RunInfo | None, where: str) -> None:
    """In one arm, the empty set answers the same under every condition: it is one and the same forward."""
    if run is None:
        return
    empty = run.sets.baseline.key
    allowed = _allowed(run)
    known = {entry.key for entry in run.sets}
    for arm in task.arms:
        first = None
        for condition in task.conditions(arm):
            block = task.blocks[(arm, condition)]
            strange = sorted(set(block.sets) - known)
            if strange:
                raise HarnessHeadsError(f"{where}: arm {arm} answers for set {strange[0]}, which the run does not list")
            if condition != NO_CONDITION and known - set(block.sets):
                lost = sorted(known - set(block.sets))[0]
                raise HarnessHeadsError(f"{where}: arm {arm}, condition {condition} has no answer for set {lost}")
            if empty not in block.sets:
                raise HarnessHeadsError(f"{where}: arm {arm}, condition {condition} has no baseline (the empty set)")
            values = block.logprobs[:, block.sets.index(empty)]
            first = values if first is None else first
            _close(first, values, allowed, f"{where}: arm {arm}: baselines under two conditions")


def merged(runs: Sequence[RunInfo], tasks: Sequence[TaskEvidence]) -> None:
    """Runs that are read together agree on items, revisions and baselines.

    Raises:
        HarnessHeadsError: naming task and the first difference.
    """
    revisions: dict[str, object] = {}
    for run in runs:
        if run.value.get("fan"):
            continue
        name, revision = str(run.model["id"]), run.model.get("revision")
        if revisions.setdefault(name, revision) != revision:
            raise HarnessHeadsError(
                f"two revisions of {name}: {revisions[name]} and {revision}; report them separately"
            )
    first: dict[str, TaskEvidence] = {}
    answered: dict[tuple[str, str, str], TaskEvidence] = {}
    for task in tasks:
        other = first.setdefault(task.task, task)
        if other.items != task.items:
            odd = sorted(set(other.items) ^ set(task.items))
            raise HarnessHeadsError(
                f"task {task.task}: two runs with different items ({len(odd)} are in one only, first {odd[0]}); "
                "compare runs of the same items"
            )
        if task.run < 0:
            continue
        run = runs[task.run]
        key = (task.task, str(run.model["id"]), str(run.model.get("dtype")))
        same = answered.setdefault(key, task)
        if same is task:
            continue
        if same.run == task.run:
            raise HarnessHeadsError(f"task {task.task}: the same run was given twice")
        for arm in sorted(set(same.arms) & set(task.arms)):
            a, b = (_baseline(t, arm, runs[t.run]) for t in (same, task))
            if a is not None and b is not None:
                _close(a, b, _allowed(run), f"task {task.task}: arm {arm}: baselines of two runs")


def _baseline(task: TaskEvidence, arm: str, run: RunInfo) -> np.ndarray | None:
    conditions = task.conditions(arm)
    if not conditions:
        return None
    block = task.blocks[(arm, conditions[0])]
    if run.sets.baseline.key not in block.sets:
        return None
    return np.asarray(block.logprobs[:, block.sets.index(run.sets.baseline.key)])


def _allowed(run: RunInfo) -> float:
    return BASELINE_GAP.get(str(run.model.get("dtype")), LOW_PRECISION_GAP)


def _close(a: np.ndarray, b: np.ndarray, allowed: float, what: str) -> None:
    with np.errstate(invalid="ignore"):
        # both minus infinity is agreement; log-probabilities of next to nothing may differ freely
        gap = np.where((a == b) | ((a < -30) & (b < -30)), 0.0, np.abs(a - b))
    if gap.size and gap.max() > allowed:
        raise HarnessHeadsError(f"{what} differ by {gap.max():.3g} in log-probability (at most {allowed:g})")
