"""Two runs side by side: settings that differ, what their sets share, and the paired test on common items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol import statistics as st
from harness_heads.protocol.evidence import Evidence, TaskEvidence
from harness_heads.protocol.formats import Cell, count_cell, counted, interval_cell, p_cell, value_cell, word
from harness_heads.protocol.resampled import SEED
from harness_heads.protocol.runs import RunInfo
from harness_heads.protocol.scores import LABELS, ScoreTable, score_tables
from harness_heads.protocol.sections.sets import ceilings
from harness_heads.protocol.tables import Table

_VOLATILE = ("journal", "condition_batch")


def compare(first: Evidence, second: Evidence) -> tuple[Table, ...]:
    """Tables of differing settings, overlaps and paired tests.

    Raises:
        HarnessHeadsError: no wrapped run in one of them, or no items and scores in common.
    """
    for name, evidence in (("first", first), ("second", second)):
        if not evidence.runs:
            raise HarnessHeadsError(f"compare: the {name} folder holds no run with head sets")
    tables = [_settings(first, second), _overlap(first, second)]
    tables += [t for i, folder in enumerate((*first.discovery, *second.discovery)) if (t := ceilings(folder, i))]
    tables.append(_paired(first, second))
    return tuple(tables)


def _settings(first: Evidence, second: Evidence) -> Table:
    a, b = (_flat(evidence) for evidence in (first, second))
    rows = []
    for key in sorted(a.keys() | b.keys()):
        if a.get(key) != b.get(key):
            rows.append((word(key), word(a.get(key, "absent")), word(b.get(key, "absent"))))
    note = "" if rows else "The two runs have the same settings, sets, conditions, versions and tasks."
    return Table("settings", "Settings that differ", ("Setting", "First", "Second"), tuple(rows), note)


def _flat(evidence: Evidence) -> dict[str, str]:
    out: dict[str, str] = {}
    for number, run in enumerate(evidence.runs):
        at = f"run {number}: " if len(evidence.runs) > 1 else ""
        out |= _lines(f"{at}model", {k: v for k, v in run.model.items() if k != "geometry"})
        out |= _lines(f"{at}setting", {k: v for k, v in run.settings.items() if k not in _VOLATILE})
        out |= _lines(f"{at}version", run.value.get("versions") or {})
        out[f"{at}op"] = run.op
        out[f"{at}plan"] = str(run.plan_digest)
        out[f"{at}sets"] = ", ".join(f"{e.heads.name} {e.key}" for e in run.tested)
        out[f"{at}control sets"] = str(len(run.sets.role("control")))
        out[f"{at}conditions"] = ", ".join(c.name for c in run.conditions)
    for task in evidence.tasks:
        out[f"task {task.task}: items"] = f"{task.n}, {_items_digest(task)}"
        out[f"task {task.task}: recipe"] = f"{task.recipe} version {task.recipe_version}, seed {task.seed}"
    return out


def _lines(what: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {f"{what}: {k}": str(v) for k, v in values.items()}


def _items_digest(task: TaskEvidence) -> str:
    import hashlib

    return hashlib.sha256("".join(task.items).encode()).hexdigest()[:8]


def _overlap(first: Evidence, second: Evidence) -> Table:
    rows = []
    for run_a in first.runs:
        for run_b in second.runs:
            if run_a.geometry.heads != run_b.geometry.heads:
                continue
            for one in run_a.tested:
                for two in run_b.tested:
                    shared = len(st.decompose(one.heads, two.heads).shared)
                    flat = st.uniform_chance(len(one.heads), len(two.heads), run_a.geometry.total)
                    layered = st.layer_chance(one.heads.per_layer, two.heads.per_layer, run_a.geometry.heads)
                    rows.append(
                        (
                            word(f"{one.heads.name} / {two.heads.name}"),
                            count_cell(shared),
                            count_cell(len(one.heads)),
                            count_cell(len(two.heads)),
                            value_cell(flat.mean, 2),
                            Cell(f"{layered.mean:.2f} ({layered.low} to {layered.high})", (layered.mean,)),
                        )
                    )
    columns = ("Sets", "Shared", "k first", "k second", "Chance, uniform", "Chance, same layers (95 %)")
    note = "" if rows else "The two models have different geometries: their sets cannot be compared head by head."
    return Table("overlap", "Overlap of the sets", columns, tuple(dict.fromkeys(rows)), note)


def _paired(first: Evidence, second: Evidence) -> Table:
    rows: list[tuple[Cell, ...]] = []
    notes = []
    for task_a in first.tasks:
        for task_b in second.tasks:
            if task_a.task != task_b.task or min(task_a.run, task_b.run) < 0:
                continue
            common = sorted(set(task_a.items) & set(task_b.items))
            if len(common) < max(task_a.n, task_b.n):
                notes.append(f"{task_a.task}: {counted(len(common), 'item')} in common of {task_a.n} and {task_b.n}")
            if len(common) > 1:
                rows += _task_rows(first.runs[task_a.run], task_a, second.runs[task_b.run], task_b, common)
    columns = (
        "Sets",
        "Task, condition",
        "Score",
        "First - second [95 % CI]",
        "Paired t p",
        "Wilcoxon p",
        "Sign-flip p",
    )
    if not rows:
        raise HarnessHeadsError(f"compare: {_nothing_in_common(first, second)}")
    note = "; ".join([*notes, f"Scope: {st.SCOPE}. Two-sided, uncorrected"]) + "."
    return Table("paired", "Paired tests on common items", columns, tuple(rows), note)


def _nothing_in_common(first: Evidence, second: Evidence) -> str:
    """Why no paired test can be made, and what would mend it."""
    by_name = [{t.task: t for t in e.tasks if t.run >= 0} for e in (first, second)]
    shared = sorted(by_name[0].keys() & by_name[1].keys())
    if not shared:
        a, b = (", ".join(sorted(tasks)) or "none" for tasks in by_name)
        return f"the two runs share no task (first: {a}; second: {b}); compare runs of one task"
    items = [len(set(by_name[0][name].items) & set(by_name[1][name].items)) for name in shared]
    if max(items) < 2:
        few = counted(max(items), "item")
        return f"the two runs share {few} of {', '.join(shared)}; compare runs of the same items (data, seed)"
    on = ", ".join(shared)
    return f"on {on}, the two runs share no score under one condition; compare runs of one operation, rows and strength"


def _task_rows(
    run_a: RunInfo, task_a: TaskEvidence, run_b: RunInfo, task_b: TaskEvidence, common: list[str]
) -> list[tuple[Cell, ...]]:
    rows_a = [task_a.items.index(i) for i in common]
    rows_b = [task_b.items.index(i) for i in common]
    codes = st.cluster_codes([task_a.clusters[i] for i in rows_a])
    others: dict[tuple[str, str], ScoreTable] = {
        (t.score, t.condition): t for t in score_tables(task_b, run_b) if t.primary
    }
    out: list[tuple[Cell, ...]] = []
    for table in score_tables(task_a, run_a):
        other = others.get((table.score, table.condition))
        if not table.primary or other is None:
            continue
        for one in run_a.tested:
            for two in run_b.tested:
                if one.key not in table.sets or two.key not in other.sets:
                    continue
                d = table.of([one.key])[rows_a, 0] - other.of([two.key])[rows_b, 0]
                found = st.paired_t(d, codes)
                flips = st.sign_flip(d, np.random.default_rng(SEED), 10_000, codes)
                out.append(
                    (
                        word(f"{one.heads.name} - {two.heads.name}"),
                        word(f"{task_a.task}, {table.condition}"),
                        word(LABELS[table.score]),
                        interval_cell(found.difference, found.low, found.high, 4, found.reason),
                        p_cell(found.p, found.reason),
                        p_cell(st.wilcoxon_p(d), "all differences are zero"),
                        p_cell(flips.p),
                    )
                )
    return out
