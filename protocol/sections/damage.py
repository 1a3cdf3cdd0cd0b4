"""Generic damage: what breaking heads does that nobody chose for looking (paper A, Table 12)."""

from __future__ import annotations

from harness_heads.protocol.analysis import Analysis, TaskAnalysis
from harness_heads.protocol.formats import Cell, count_cell, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.tables import Table

_NCS = ("drop_matched", "drop_mismatched", "ncs", "ncs_v2", "drop_text_text")


def damage_section(a: Analysis) -> Section:
    """One table per task, condition and parent set."""
    tables = []
    for number, task in enumerate(a.tasks):
        primary = [t for t in task.tables if t.primary]
        for step, table in enumerate(primary):
            scores = _NCS if table.score == "ncs" else (table.score,)
            rows = _rows(task, table.condition, scores)
            if rows:
                columns = ("Head set", "Heads", *(LABELS[s] for s in scores))
                title = f"Generic damage, {task.evidence.task}, {table.condition}"
                tables.append(
                    Table(f"damage-{number}-{step}", title, columns, tuple(rows), "", "Table 12 of arXiv:2610.13111")
                )
    lead = (
        "Sets that break the model without being about the image. A score that they share is damage; the text arm with "
        "text masked shows that masking them bites at all."
    )
    return Section("damage", "Generic-damage controls", lead, (), tuple(tables))


def _rows(task: TaskAnalysis, condition: str, scores: tuple[str, ...]) -> list[tuple[Cell, ...]]:
    damage = task.run.sets.role("damage")
    if not damage:
        return []
    rows = []
    for entry in (*task.run.tested, *damage):
        cells = [word(entry.heads.name), count_cell(len(entry.heads))]
        for score in scores:
            table = task.table(score, condition)
            if table is None or entry.key not in table.sets:
                cells.append(word("no such arm"))
            else:
                cells.append(value_cell(float(table.of([entry.key]).mean()), strong=entry.role != "damage"))
        rows.append(tuple(cells))
    return rows
