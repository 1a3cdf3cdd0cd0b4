"""Arms without intervention, their audits, and NCS split into its arms (paper A, Tables 11 and 22)."""

from __future__ import annotations

import math

from harness_heads.protocol.analysis import Analysis, TaskAnalysis
from harness_heads.protocol.figures import arms_figure
from harness_heads.protocol.formats import Cell, count_cell, interval_cell, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.leaks import LIMIT, SURPLUS
from harness_heads.protocol.tables import Table
from harness_heads.protocol.words import accuracies, intervention


def arms_section(a: Analysis) -> Section:
    """Arms, audits, and the split of NCS."""
    # two runs of one model answer the same without intervention: shown once
    once = {(_task(a, t), t.levels): t for t in reversed(a.tasks) if t.levels}
    shown = [t for t in a.tasks if once.get((_task(a, t), t.levels)) is t]
    figures = tuple(arms_figure(t, f"arms-{t.evidence.run}-{t.evidence.task}") for t in shown)
    tables = [t for t in (_levels(a), _audits(a), _dropped(a), _split(a), _stock(a)) if t is not None]
    lead = (
        "Without intervention, an arm that shows the answer must be near 1 and one that hides it near chance; an arm "
        "out of range leaks or fails, and no contrast with it means what it says."
    )
    return Section("arms", "Arms and leak audit", lead, figures, tuple(tables))


def _levels(a: Analysis) -> Table | None:
    rows = []
    for task in a.tasks:
        ranges = {x.arm: x for x in task.audits}
        for level in task.levels:
            audit = ranges.get(level.arm)
            state = "no expectation" if audit is None else "pass" if audit.passed else "FAIL"
            letters = ", ".join(f"{c} {s:.2f}" for c, s in zip(task.evidence.letters, level.letters, strict=True))
            rows.append(
                (
                    word(_task(a, task)),
                    word(level.arm),
                    value_cell(level.p),
                    value_cell(level.p_renorm, reason="all options have probability 0"),
                    value_cell(level.accuracy),
                    value_cell(level.mass),
                    word("" if audit is None else audit.expected),
                    Cell(state, (), state == "FAIL"),
                    word(letters),
                    count_cell(task.evidence.n),
                )
            )
    if not rows:
        return None
    columns = (
        "Task",
        "Arm",
        "P(c)",
        "P(c), options only",
        "Accuracy",
        "Mass on options",
        "Expected",
        "Audit",
        "Answers",
        "N",
    )
    note = (
        "The audit reads P(c) over the whole vocabulary. Its limits are this project's and stricter than the paper's."
    )
    return Table("arms", "Arms without intervention", columns, tuple(dict.fromkeys(rows)), note)


def _audits(a: Analysis) -> Table | None:
    """One row a task: the shape of paper A's Table 22."""
    rows = []
    for task in a.tasks:
        p = {x.arm: x for x in task.levels}
        grid = "oracle" in p or any(t.score in ("cers", "ncs_grid") for t in task.tables)
        cells = [word(_task(a, task))]
        for arm, mine in (("oracle", grid), ("blank", grid), ("matched", not grid), ("mismatched", not grid)):
            level = p.get(arm) if mine else None
            bad = any(x.arm == arm and not x.passed for x in task.audits) if mine else False
            cells.append(value_cell(level.accuracy, strong=bad) if level else word("-"))
        cells.append(value_cell(task.headroom, reason="no such arms"))
        rows.append(tuple(cells))
    columns = ("Task", "CERS oracle", "CERS floor", "NCS matched", "NCS mismatched", "NCS headroom, P(c)")
    note = "Accuracies, as the paper prints them; bold: the arm's mean P(c) is outside its range."
    return (
        Table("audit", "Leak audit by task", columns, tuple(dict.fromkeys(rows)), note, "Table 22 of arXiv:2610.13111")
        if rows
        else None
    )


def _dropped(a: Analysis) -> Table | None:
    """What the leak audit of an audited task left out: one row a reason."""
    rows = []
    for task in a.tasks:
        evidence = task.evidence
        built = evidence.n + sum(map(len, evidence.dropped.values()))
        for reason, items in evidence.dropped.items():
            numbers = (count_cell(built), count_cell(evidence.n), word(reason), count_cell(len(items)))
            rows.append((word(_task(a, task)), *numbers, word(", ".join(items) if reason != SURPLUS else "-")))
    if not rows:
        return None
    note = (
        f"Without intervention, an item leaks if an arm that hides its answer gives it P(c) above {LIMIT}, and is "
        f"unanswered if the arm that shows it gives at most {LIMIT}: which items count depends on the model, not on "
        "the head sets. The ceilings of the grid contrast, under Contrasts on the grid, are of the items that count."
    )
    columns = ("Task", "Built", "Counted", "Left out because", "Items", "Ids")
    return Table("leaks", "Items left out by the leak audit", columns, tuple(rows), note)


def _split(a: Analysis) -> Table | None:
    rows = []
    for test in a.leading:
        if test.effect.score != "ncs":
            continue
        task = a.task_of(test)
        base = {x.arm: x for x in task.levels}
        e = test.effect
        for suffix, name in (("", "as it is"), ("_renorm", "options only")):
            found = [
                task.effect(s + suffix, e.condition, e.key, e.family)
                for s in ("drop_matched", "drop_mismatched", "ncs")
            ]
            if any(x is None for x in found):
                continue
            match, mism, ncs = (x for x in found if x is not None)
            p = {arm: level.p_renorm if suffix else level.p for arm, level in base.items()}
            row = [word(e.name), word(e.condition), word(name)]
            row += [
                value_cell(p.get("matched", math.nan) - match.mean),
                interval_cell(match.mean, match.low, match.high),
            ]
            row += [
                value_cell(p.get("mismatched", math.nan) - mism.mean),
                interval_cell(mism.mean, mism.low, mism.high),
            ]
            row.append(interval_cell(ncs.mean, ncs.low, ncs.high))
            if not suffix:
                odds = task.effect("ncs_logodds", e.condition, e.key, e.family)
                two = task.effect("ncs_v2", e.condition, e.key, e.family)
                row.append(value_cell(two.mean) if two else word("no text arm"))
                row.append(value_cell(odds.mean, reason=odds.reasons.get("mean", "")) if odds else word("-"))
            else:
                row += [word("-"), word("-")]
            rows.append(tuple(row))
    if not rows:
        return None
    columns: tuple[str, ...] = (
        "Set",
        "Condition",
        "P",
        "P masked, matched",
        "Matched drop",
        "P masked, mismatched",
        "Mismatched drop",
        "NCS",
    )
    columns += ("NCS-v2", "NCS in log-odds")
    note = (
        "NCS = matched drop - mismatched drop. NCS-v2 puts the text-solvable arm's drop in place of the mismatched one "
        "(a reconstruction). Drops are baseline minus masked, with t intervals over items."
    )
    return Table("split", "NCS split into its arms", columns, tuple(rows), note, "Table 11 of arXiv:2610.13111")


def _stock(a: Analysis) -> Table | None:
    rows = []
    for task in a.stock:
        for arm, shares in accuracies(task).items():
            numbers = (value_cell(share, reason="no parsable answer") for share in shares)
            rows.append((word(task.task), word(arm), *numbers, word(intervention(task))))
    columns = ("Task", "Arm", "Accuracy", "Parsable", "Accuracy among parsable", "Intervention")
    note = (
        "Accuracy that falls with the parsable share lost the format, accuracy that falls among the parsable answers "
        "lost the content."
    )
    return Table("stock", "Answers in words", columns, tuple(rows), note) if rows else None


def _task(a: Analysis, task: TaskAnalysis) -> str:
    several = len({str(run.model["id"]) for run in a.evidence.runs}) > 1
    return f"{task.evidence.task} ({task.run.model['id']})" if several else task.evidence.task
