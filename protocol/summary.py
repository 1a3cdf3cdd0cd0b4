"""Numbers of one task for lmms-eval's result table, from its item records alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import ItemRecord
from harness_heads.protocol.effects import Effect, arm_levels, effects, headroom
from harness_heads.protocol.evidence import TaskEvidence
from harness_heads.protocol.leaks import audited, ceilings
from harness_heads.protocol.records import read_records
from harness_heads.protocol.runs import RunInfo, run_info_from_dict
from harness_heads.protocol.scores import score_tables
from harness_heads.protocol.words import accuracies, intervention

_PRIMARY_STATISTICS = ("control_mean", "control_sd", "z")
AGAINST_ZERO = "p against zero (wrong null)"


def task_summary(records: Sequence[ItemRecord], run: Mapping[str, Any] | None = None) -> dict[str, float | str]:
    """What a task showed, as ``name -> number``; records in any order, from any number of ranks.

    Arms are named alone (``P_matched``); what belongs to a set is prefixed by its name (``tiny/a: ncs``), and by its
    condition or control family too where a task has several. NaN where a number cannot be estimated.

    Args:
        records: item records of one task.
        run: the run block, where no record carries it.
    """
    if not records:
        return {"note": "no items"}
    reader = read_records(records, records[0].task)
    stock = all(not row.blocks for row in reader.rows.values())
    task = audited(reader.finish(-1 if stock else 0))
    if stock:
        return stock_summary(task)
    runs = reader.runs or ([] if run is None else [run_info_from_dict(run, task.task)])
    if not runs:
        raise HarnessHeadsError(f"task {task.task}: no answer carries the run's head sets")
    return evidence_summary(task, runs[0])


def evidence_summary(task: TaskEvidence, run: RunInfo) -> dict[str, float | str]:
    """The same from a task that was already read."""
    out: dict[str, float | str] = {"n": float(task.n)}
    levels = arm_levels(task, run)
    for level in levels:
        out |= {f"P_{level.arm}": level.p, f"acc_{level.arm}": level.accuracy}
    top = headroom(levels)
    if not math.isnan(top):
        out["headroom"] = top
    tables = score_tables(task, run)
    if task.dropped:
        out |= {f"left out: {reason}": float(len(items)) for reason, items in task.dropped.items()}
    grid = next((t for t in tables if t.score == "ncs_grid"), None)
    if grid is not None:
        most = dict(zip(("ceiling all heads blind", "ceiling cell blanked"), ceilings(grid, levels, run), strict=True))
        out |= {name: value for name, value in most.items() if not math.isnan(value)}
    found = effects(task, run, tables)
    several = {
        "condition": len({e.condition for e in found if e.primary}) > 1,
        "family": len({e.family for e in found}) > 1,
        "score": len({e.score for e in found if e.primary}) > 1,
    }
    first_family = {(e.key, e.score, e.condition): e.family for e in reversed(found)}
    for effect in found:
        name = effect.name + (f" {effect.condition}" if several["condition"] else "")
        if effect.family == first_family[(effect.key, effect.score, effect.condition)]:
            out[f"{name}: {effect.score}"] = effect.mean
            if effect.score == "ncs":
                out[f"{name}: ncs_over_headroom"] = effect.mean / top if top > 0 else math.nan
        if effect.primary:
            held = name + (f" {effect.score}" if several["score"] else "")
            held += f" vs {effect.family}" if several["family"] else ""
            out |= {f"{held}: {s}": getattr(effect, s) for s in _PRIMARY_STATISTICS}
            out |= {f"{held}: gap": effect.mean - effect.control_mean, f"{held}: {AGAINST_ZERO}": effect.p_against_zero}
            out |= {f"{held}: rank_p": effect.p_upper, f"{held}: floor": effect.floor, f"{held}: r": float(effect.r)}
    return out


def stock_summary(task: TaskEvidence) -> dict[str, float | str]:
    """Answers in words: accuracy, share that can be parsed and accuracy among those, per arm."""
    out: dict[str, float | str] = {"n": float(task.n), "intervention": intervention(task)}
    for arm, (accuracy, parsable, among) in accuracies(task).items():
        out |= {f"accuracy {arm}": accuracy, f"parsable {arm}": parsable, f"accuracy among parsable {arm}": among}
    return out


def primary_effects(task: TaskEvidence, run: RunInfo) -> tuple[Effect, ...]:
    """The effects that claims are judged by."""
    return tuple(e for e in effects(task, run) if e.primary)
