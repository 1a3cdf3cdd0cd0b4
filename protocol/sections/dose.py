"""Attention mass: how much the intervention moved, and whether scores follow mass (paper A, Table 17)."""

from __future__ import annotations

import math

import numpy as np

from harness_heads.protocol import statistics as st
from harness_heads.protocol.analysis import Analysis, Test
from harness_heads.protocol.effects import doses
from harness_heads.protocol.formats import Cell, number, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.pitfalls_data import control_masses
from harness_heads.protocol.sections.results import label
from harness_heads.protocol.tables import Table


def dose_section(a: Analysis) -> Section:
    """Doses by arm and condition; mass of sets and controls with its correlation to the score."""
    rows = []
    for test in a.leading:
        for where, (before, after) in doses(a.task_of(test).evidence, test.effect.key).items():
            if not math.isnan(before):
                rows.append(
                    (
                        word(label(a, test)),
                        word(test.effect.task),
                        word(where),
                        value_cell(before, 4),
                        value_cell(after, 4),
                    )
                )
    unique = tuple(dict.fromkeys(rows))
    columns = ("Set", "Task", "Arm / condition", "Mass before", "Mass after")
    note = (
        "Mean attention mass of the set's heads on the condition's keys, over the rows that it acts on and all items."
    )
    tables = [Table("dose", "Dose", columns, unique, note)] if unique else []
    mass = _mass(a)
    if mass is not None:
        tables.append(mass)
    return Section("dose", "Dose and attention mass", "", (), tuple(tables))


def _mass(a: Analysis) -> Table | None:
    rows, every = [], []
    for test in a.leading:
        masses = control_masses(a, test)
        if not masses:
            continue
        found = st.spearman(masses, test.effect.controls)
        every.append(found.p)
        own = math.nan if math.isnan(test.mass_before) else test.mass_before
        cells: list[Cell] = [
            word(label(a, test)),
            word(f"{test.effect.task}, {test.effect.condition}"),
            value_cell(own),
        ]
        cells.append(
            Cell(
                f"{number(float(np.mean(masses)))} [{number(min(masses))}, {number(max(masses))}]",
                (float(np.mean(masses)), min(masses), max(masses)),
            )
        )
        cells.append(value_cell(found.rho, 2, "no spread"))
        for values in _by_head(a, test):
            correlation = st.spearman(values, test.effect.controls)
            every.append(correlation.p)
            cells.append(value_cell(correlation.rho, 2, "no spread"))
        cells += [word("no head facts")] * (5 + len(st.MASS_STATISTICS) - len(cells))
        rows.append(tuple(cells))
    if not rows:
        return None
    count = st.uncorrected_count(every)
    columns: tuple[str, ...] = (
        "Set",
        "Task, condition",
        "Mass of the set",
        "Mass of controls [range]",
        "rho(mass, score)",
    )
    columns += tuple(f"rho({name} over heads, score)" for name in st.MASS_STATISTICS)
    note = (
        f"Spearman correlations over control sets, {count.tests} in all, uncorrected: {count.passing} pass .05 alone, "
        f"{number(count.by_chance, 1)} would by chance, {count.passing_bonferroni} pass after Bonferroni."
    )
    return Table("mass", "Attention mass and score", columns, tuple(rows), note, "Table 17 of arXiv:2610.13111")


def _by_head(a: Analysis, test: Test) -> list[st.Floats]:
    """Mass statistics over the heads of each control set, from the discovery's per-head facts."""
    run = a.evidence.runs[test.run]
    source = run.sources.get(test.effect.key)
    facts = source.provenance.get("facts") if source is not None else None
    rows = facts.get("image_mass") if isinstance(facts, dict) else None
    draws = sorted(run.sets.controls(test.effect.key, test.effect.family), key=lambda e: e.draw or 0)
    if not rows or not draws or len({len(e.heads) for e in draws}) != 1:
        return []
    mass = np.array([[float(rows[h.layer][h.head]) for h in e.heads] for e in draws])
    return list(st.mass_statistics(mass).values())
