"""Sweeps over k and beta, and the breakdown by masked rows (paper A, Tables 5, 13, 14 and 18)."""

from __future__ import annotations

import math
from collections.abc import Callable

from harness_heads.protocol.analysis import Analysis, Test
from harness_heads.protocol.figures import rows_figure, sweep_figure
from harness_heads.protocol.figures.arms import rows_of
from harness_heads.protocol.formats import Cell, count_cell, number, p_cell, spread_cell, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.sections.results import score_cell
from harness_heads.protocol.tables import Table

Key = tuple[object, ...]


def sweeps_section(a: Analysis) -> Section:
    """k and beta."""
    figures, tables = [], []
    by_k = _groups(a, lambda t: (t.run, t.effect.task, t.effect.score, t.effect.condition, _base(t)))
    for number_, (key, tests) in enumerate(by_k.items()):
        if len({t.effect.k for t in tests}) > 1:
            points = [(str(t.effect.k), t) for t in sorted(tests, key=lambda t: t.effect.k)]
            title = f"{LABELS[str(key[2])]} of {key[4]} by k, {key[1]}"
            figures.append(sweep_figure(points, f"k-{number_}", title, "k"))
            tables.append(_table(f"k-table-{number_}", title, "k", points, "Table 14 of arXiv:2610.13111"))
    by_beta = _groups(a, lambda t: (t.run, t.effect.task, t.effect.score, _without(t, "beta="), t.effect.name))
    for number_, (key, tests) in enumerate(by_beta.items()):
        betas = {_beta(t): t for t in tests if not math.isnan(_beta(t))}
        if len(betas) > 1:
            points = [("hard" if math.isinf(b) else f"{b:g}", betas[b]) for b in sorted(betas)]
            title = f"{LABELS[str(key[2])]} of {key[4]} by steering strength, {key[1]}"
            figures.append(sweep_figure(points, f"beta-{number_}", title, "beta"))
            tables.append(_table(f"beta-table-{number_}", title, "beta", points, "Table 18 of arXiv:2610.13111"))
    lead = (
        "Every step has control sets of its own size and strength. A step chosen from a sweep must be tested on other "
        "items."
    )
    return Section("sweeps", "Sweeps", lead, tuple(figures), tuple(tables))


def rows_section(a: Analysis) -> Section:
    """One score by masked rows."""
    figures, tables = [], []
    groups = _groups(a, lambda t: (t.run, t.effect.task, t.effect.score, _without(t, "rows="), t.effect.name))
    for number_, (key, tests) in enumerate(groups.items()):
        if len(tests) > 1 and len({rows_of(t.effect.condition) for t in tests}) == len(tests):
            title = f"{LABELS[str(key[2])]} of {key[4]} by masked rows, {key[1]}"
            figures.append(rows_figure(tests, f"rows-{number_}", title))
            points = [(rows_of(t.effect.condition), t) for t in tests]
            tables.append(
                _table(f"rows-table-{number_}", title, "Masked rows", points, "Tables 5, 13 of arXiv:2610.13111")
            )
    lead = "The mask acts at one group of query rows; contributions do not add up."
    return Section("rows", "Where it acts", lead, tuple(figures), tuple(tables))


def _table(id: str, title: str, first: str, points: list[tuple[str, Test]], paper: str) -> Table:
    rows = []
    for name, t in points:
        e = t.effect
        low, high = min(e.controls, default=math.nan), max(e.controls, default=math.nan)
        rows.append(
            (
                word(name) if first == "Masked rows" else Cell(name, (_number(name),)),
                score_cell(t),
                spread_cell(e.control_mean, e.control_sd, reason="no control sets"),
                Cell(f"[{number(low)}, {number(high)}]", (low, high)),
                p_cell(t.p, "no control sets"),
                p_cell(t.holm, "no control sets"),
                value_cell(t.mass_after, 3, "not reported"),
                value_cell(t.control_mass_after, 3, "not reported"),
                count_cell(e.r),
            )
        )
    columns = (
        first,
        "Set [95 % CI]",
        "Controls ± SD",
        "Controls, range",
        "Rank p",
        "Holm p",
        "Mass after",
        "Control mass after",
        "R",
    )
    return Table(id, title, columns, tuple(rows), "", paper)


def _groups(a: Analysis, key: Callable[[Test], Key]) -> dict[Key, list[Test]]:
    out: dict[Key, list[Test]] = {}
    for t in a.leading:
        out.setdefault(key(t), []).append(t)
    return out


def _base(test: Test) -> str:
    return test.effect.name.split("@top")[0]


def _without(test: Test, prefix: str) -> str:
    return ":".join(p for p in test.effect.condition.split(":") if not p.startswith(prefix))


def _beta(test: Test) -> float:
    for part in test.effect.condition.split(":"):
        if part.startswith("beta="):
            text = part.removeprefix("beta=")
            return math.inf if text == "hard" else float(text)
    return math.nan


def _number(text: str) -> float:
    return math.inf if text == "hard" else float(text)
