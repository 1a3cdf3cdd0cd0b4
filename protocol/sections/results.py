"""Main result: each set against its control sets, NCS and CERS (paper A, Tables 3, 6, 8, 9, 10, 16, 19, 26 and 27)."""

from __future__ import annotations

import math

from harness_heads.protocol.analysis import ALPHA, Analysis, TaskAnalysis, Test
from harness_heads.protocol.claims import shortfalls
from harness_heads.protocol.figures import dots_figure
from harness_heads.protocol.formats import (
    Cell,
    count_cell,
    interval_cell,
    p_cell,
    p_value,
    spread_cell,
    value_cell,
    word,
)
from harness_heads.protocol.layout import Section
from harness_heads.protocol.leaks import ceilings
from harness_heads.protocol.opening import headline
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.tables import Table

SCORES = ("ncs", "ncs_grid", "grounding_drop", "cers", "stock_drop", "stock_loss")


def results_section(a: Analysis) -> Section:
    """Dot plot and table per score, then families, tasks and models side by side where there are several."""
    figures, tables = [], []
    both = _overview(a)
    if both is not None:
        tables.append(both)
    for score in SCORES:
        tests = [t for t in a.leading if t.effect.score == score]
        shown = [t for t in headline(a) if t.effect.score == score]
        if tests:
            # the opening shows the headline tests already; all of them again only where there are more
            if len(tests) > len(shown):
                figures.append(dots_figure(tests[:40], f"dots-{score}", f"{LABELS[score]}: every test"))
            tables.append(_main(a, score, tests))
    for table in (_families(a), _grid(a), _tasks(a), _models(a)):
        if table is not None:
            tables.append(table)
    lead = (
        "A set is held against each of its control sets, not against their mean: the rank p is its place among them, "
        "and cannot be smaller than the floor 1/(R+1)."
    )
    return Section("results", "Sets against their controls", lead, tuple(figures), tuple(tables))


def label(a: Analysis, test: Test) -> str:
    """Set name, with the model where the report has several."""
    several = len({str(run.model["id"]) for run in a.evidence.runs}) > 1
    return f"{test.effect.name} ({test.model})" if several else test.effect.name


def why_no_p(test: Test) -> str:
    """Reason of a missing p or spread."""
    return test.effect.reasons.get("p_upper", test.effect.reasons.get("mean", ""))


def score_cell(test: Test) -> Cell:
    """Mean with its item interval, bold where it lies above its controls by the criteria of a claim."""
    e = test.effect
    reason = e.reasons.get("mean", e.reasons.get("low", ""))
    return interval_cell(e.mean, e.low, e.high, reason=reason, strong=not shortfalls(test, ALPHA))


def _main(a: Analysis, score: str, tests: list[Test]) -> Table:
    rows = []
    for t in tests:
        e = t.effect
        why = why_no_p(t)
        row = [
            word(label(a, t)),
            word(f"{e.task}, {e.condition}"),
            score_cell(t),
            spread_cell(e.control_mean, e.control_sd, reason=why),
            p_cell(t.p, why),
            p_cell(e.floor, "no control sets"),
            p_cell(t.holm, why),
            p_cell(t.max_t, "needs equal R"),
            value_cell(e.z, 1, e.reasons.get("z", why)),
            p_cell(e.crawford_p, e.reasons.get("z", why)),
            count_cell(e.n),
            count_cell(e.r),
            count_cell(t.m),
        ]
        if score == "ncs":
            row.append(value_cell(t.over_headroom, 3, "no headroom"))
        rows.append(tuple(row))
    columns = ["Set", "Task, condition", f"{LABELS[score]} [95 % CI]", "Controls, mean ± SD", "Rank p", "Floor"]
    columns += ["Holm p", "Max-T p", "z", "Crawford-Howell p", "N", "R", "m"]
    columns += ["Share of headroom"] if score == "ncs" else []
    note = (
        "CI: t interval over items. SD: of individual control sets. z and Crawford-Howell describe the distance and "
        "need normal controls; the claim is the adjusted rank p. Bold: adjusted p at most .05."
    )
    return Table(
        f"main-{score}",
        f"{LABELS[score]} of each set",
        tuple(columns),
        tuple(rows),
        note,
        "Tables 3, 10, 14 of arXiv:2610.13111",
    )


def _overview(a: Analysis) -> Table | None:
    """One row a set with both scores: the shape of paper A's Table 3."""
    names = {t.effect.name for t in a.leading if t.effect.score == "cers"}
    names &= {t.effect.name for t in a.leading if t.effect.score == "ncs"}
    if not names:
        return None
    rows = []
    for name in dict.fromkeys(t.effect.name for t in a.leading if t.effect.name in names):
        row: list[Cell] = [word(name)]
        for score in ("cers", "ncs"):
            test = next(t for t in a.leading if t.effect.name == name and t.effect.score == score)
            row += [score_cell(test), spread_cell(test.effect.control_mean, test.effect.control_sd), p_cell(test.p)]
            if score == "cers":
                other = [t for t in a.tests if t.effect.family == "any" and t.effect.key == test.effect.key]
                other = [t for t in other if t.effect.score == score and t.effect.condition == test.effect.condition]
                row.append(
                    spread_cell(other[0].effect.control_mean, other[0].effect.control_sd)
                    if other
                    else word("not drawn")
                )
        rows.append(tuple(row))
    columns = (
        "Setting",
        "CERS [95 % CI]",
        "Controls ± SD",
        "p",
        "Any layer ± SD",
        "NCS [95 % CI]",
        "Controls ± SD",
        "p",
    )
    note = "First task, condition and control family of each score; p is the unadjusted rank p."
    return Table(
        "overview", "Steerability and necessity side by side", columns, tuple(rows), note, "Table 3 of arXiv:2610.13111"
    )


def _families(a: Analysis) -> Table | None:
    families = list(dict.fromkeys(t.effect.family for t in a.tests if t.effect.family))
    if len(families) < 2:
        return None
    rows = []
    for t in a.leading:
        row: list[Cell] = [
            word(label(a, t)),
            word(f"{t.effect.task}, {t.effect.condition}"),
            word(LABELS[t.effect.score]),
        ]
        for family in families:
            wanted = (t.run, t.effect.task, t.effect.score, t.effect.condition, t.effect.key, family)
            found = [
                u
                for u in a.tests
                if (u.run, u.effect.task, u.effect.score, u.effect.condition, u.effect.key, u.effect.family) == wanted
            ]
            if found:
                e = found[0].effect
                text = f"{p_value(found[0].p)} ({spread_cell(e.control_mean, e.control_sd).text})"
                row.append(Cell(text, (found[0].p, e.control_mean, e.control_sd)))
            else:
                row.append(word("not drawn"))
        rows.append(tuple(row))
    columns = ("Set", "Task, condition", "Score", *(f"p against {f} (mean ± SD)" for f in families))
    note = "Each family states another null; layer is the exact one."
    return Table("families", "Rank p by control family", columns, tuple(rows), note, "Table 9 of arXiv:2610.13111")


def _grid(a: Analysis) -> Table | None:
    """Region contrast and symmetric CERS, the shape of paper A's Tables 6 and 16."""
    rows = []
    for t in a.leading:
        task = a.task_of(t)
        e = t.effect
        score = {"ncs_grid": "ncs_grid", "cers": "cers_symmetric"}.get(e.score)
        found = task.effect(score, e.condition, e.key, e.family) if score else None
        if found is not None:
            ceiling, pixels = _ceilings(a, t)
            rows.append(
                (
                    word(label(a, t)),
                    word(f"{e.task}, {e.condition}"),
                    word(LABELS[found.score]),
                    interval_cell(found.mean, found.low, found.high),
                    spread_cell(found.control_mean, found.control_sd, reason="no control sets"),
                    p_cell(found.p_upper, "no control sets"),
                    value_cell(ceiling, reason="no all-heads set"),
                    value_cell(pixels, reason="no pixel arms"),
                )
            )
    if not rows:
        return None
    columns = (
        "Set",
        "Task, condition",
        "Score",
        "Set [95 % CI]",
        "Controls ± SD",
        "Rank p",
        "All heads blind",
        "Cell blanked",
    )
    note = (
        "Within-item contrasts, in which generic damage cancels. The last columns are ceilings of the grid contrast: "
        "every head blind to the cell, and the cell blanked in pixels; their difference is what leaks through other "
        "tokens."
    )
    return Table("grid", "Contrasts on the grid", columns, tuple(rows), note, "Tables 6, 16 of arXiv:2610.13111")


def _ceilings(a: Analysis, test: Test) -> tuple[float, float]:
    task = a.task_of(test)
    e = test.effect
    if e.score != "ncs_grid":
        return math.nan, math.nan
    return ceilings(task.table(e.score, e.condition), task.levels, task.run)


def _tasks(a: Analysis) -> Table | None:
    """One row a task, set and gap (paper A, Tables 26 and 27)."""
    by_score = {s: {t.effect.task for t in a.leading if t.effect.score == s} for s in SCORES}
    scores = [s for s in SCORES if len(by_score[s]) > 1]
    rows = []
    for score in scores:
        for t in a.leading:
            e = t.effect
            if e.score == score:
                cells = (word(e.task), word(label(a, t)), word(LABELS[score]), word(e.condition))
                numbers = (value_cell(e.mean), value_cell(e.control_mean, reason="no control sets"))
                gap = value_cell(e.mean - e.control_mean, reason="no control sets")
                accuracy = value_cell(_baseline(a.task_of(t)), reason="no such arm")
                zero = p_cell(e.p_against_zero, "no spread over items")
                null = value_cell(t.outside_zero, reason="no control sets")
                rows.append((*cells, accuracy, *numbers, gap, p_cell(t.p, "no control sets"), zero, null))
    if not rows:
        return None
    columns: tuple[str, ...] = ("Task", "Set", "Score", "Condition", "Baseline accuracy", "Set", "Control mean", "Gap")
    columns += ("Rank p", "p against zero (wrong null)", "Controls significant against zero")
    note = (
        "Gap from unrounded values. The t-test against zero is there for comparison with the paper alone: zero is the "
        "wrong null, as the share of control sets that differ from it shows; the rank p is the test."
    )
    return Table(
        "tasks",
        "Tasks side by side",
        columns,
        tuple(rows),
        note,
        "Tables 23, 26, 27 of arXiv:2610.13111",
    )


def _baseline(task: TaskAnalysis) -> float:
    """Accuracy without intervention where the task's question is asked; NaN where the task has no such arm."""
    return next((x.accuracy for x in task.levels if x.arm in ("matched", "grid")), math.nan)


def _models(a: Analysis) -> Table | None:
    """One row a model, set against control mean (paper A, Tables 8, 19, 24 and 27)."""
    models = list(dict.fromkeys(t.model for t in a.leading))
    if len(models) < 2:
        return None
    rows = []
    for t in a.leading:
        e = t.effect
        task = a.task_of(t)
        rows.append(
            (
                word(t.model),
                word(e.task),
                value_cell(_baseline(task), reason="no such arm"),
                word(e.name),
                word(LABELS[e.score]),
                score_cell(t),
                spread_cell(e.control_mean, e.control_sd, reason="no control sets"),
                p_cell(t.p, "no control sets"),
            )
        )
    columns = ("Model", "Task", "Baseline accuracy", "Set", "Score", "Set [95 % CI]", "Controls ± SD", "Rank p")
    return Table("models", "Models side by side", columns, tuple(rows), "", "Tables 8, 19, 24, 27 of arXiv:2610.13111")
