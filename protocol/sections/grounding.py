"""Grounding under ablation: accuracy, and whether place or format is lost (paper B, Table 3 and Figure 8)."""

from __future__ import annotations

import math

from harness_heads.protocol.analysis import Analysis
from harness_heads.protocol.formats import Cell, interval_cell, p_cell, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.sections.results import label
from harness_heads.protocol.tables import Table


def grounding_section(a: Analysis) -> Section:
    """One row a set: outcomes without and with it, beside the mean of its controls."""
    rows: list[tuple[Cell, ...]] = []
    for test in a.leading:
        e = test.effect
        if e.score != "grounding_drop":
            continue
        task = a.task_of(test)
        other = {name: task.effect(name, e.condition, e.key, e.family) for name in ("mislocated", "unparsable")}
        mislocated, unparsable = (math.nan if x is None else x.mean for x in other.values())
        # the three outcomes of an answer add up to 1, so that accuracy follows from the other two
        accuracy = 1 - mislocated - unparsable
        rows.append(
            (
                word(label(a, test)),
                word(f"{e.task}, {e.condition}"),
                value_cell(accuracy + e.mean),
                value_cell(accuracy),
                interval_cell(e.mean, e.low, e.high),
                value_cell(accuracy + e.mean - e.control_mean, reason="no control sets"),
                p_cell(test.p, "no control sets"),
                value_cell(mislocated),
                value_cell(unparsable),
            )
        )
    columns: tuple[str, ...] = ("Set", "Task, condition", "Accuracy", "Accuracy, set ablated", "Drop [95 % CI]")
    columns += ("Accuracy, controls ablated", "Rank p", "Box elsewhere", "No box")
    note = "A box is right at IoU of at least .5. The last two columns are shares of all answers with the set ablated."
    tables = (Table("grounding", "Grounding outcomes", columns, tuple(rows), note, "Table 3 of arXiv:2608.27417"),)
    return Section("grounding", "Grounding", "", (), tables if rows else ())
