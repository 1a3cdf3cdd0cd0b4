"""Per-item distribution and the items that an intervention moved most."""

from __future__ import annotations

import numpy as np

from harness_heads.protocol.analysis import Analysis, Test
from harness_heads.protocol.effects import control_keys
from harness_heads.protocol.figures import items_figure
from harness_heads.protocol.formats import Cell, count_cell, value_cell, word
from harness_heads.protocol.gallery import item_figure
from harness_heads.protocol.layout import Section
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.tables import Table

SHOWN = 4
LISTED = 10


def items_section(a: Analysis) -> Section:
    """Histograms of every leading test; gallery and list of the most affected items of the strongest test per score."""
    figures, tables = [], []
    leading = [test for test in a.leading if test.effect.n]
    for number, test in enumerate(leading[:24]):
        own, null = item_values(a, test)
        e = test.effect
        label = LABELS[e.score]
        figures.append(items_figure(own, null, f"{e.name}, {e.task}, {e.condition}", label, f"items-{number}"))
    for score in dict.fromkeys(t.effect.score for t in leading):
        strongest = max((t for t in leading if t.effect.score == score), key=lambda t: _finite(t.effect.mean))
        own, null = item_values(a, strongest)
        order = [int(i) for i in np.argsort(-np.nan_to_num(own, nan=-np.inf), kind="stable")]
        figures += [item_figure(a, strongest, i, f"item-{score}-{rank}") for rank, i in enumerate(order[:SHOWN])]
        tables.append(_table(a, strongest, order[:LISTED], own, null))
    lead = (
        "Each item's own score. The gallery shows the items on which the strongest set acted most: chosen, not "
        "typical. Run folders hold hashes of images; a picture is painted where the task's data are at hand."
    )
    return Section("items", "Items", lead, tuple(figures), tuple(tables))


def item_values(a: Analysis, test: Test) -> tuple[np.ndarray, np.ndarray]:
    """Item scores of a set, [N], and of its controls, [N, R]."""
    task = a.task_of(test)
    table = task.table(test.effect.score, test.effect.condition)
    assert table is not None
    keys = control_keys(task.run, test.effect.key, test.effect.family)
    return table.of([test.effect.key])[:, 0], table.of(keys)


def _table(a: Analysis, test: Test, chosen: list[int], own: np.ndarray, null: np.ndarray) -> Table:
    task = a.task_of(test).evidence
    rows: list[tuple[Cell, ...]] = []
    for i in chosen:
        right = int(task.correct[""][i])
        answer = task.options[i][right] if 0 <= right < len(task.options[i]) else "-"
        null_mean = float(null[i].mean()) if null.shape[1] else float("nan")
        rows.append(
            (
                word(task.items[i]),
                count_cell(task.index[i]),
                word(answer),
                value_cell(float(own[i])),
                value_cell(null_mean, reason="no control sets"),
                word(task.clusters[i]),
            )
        )
    label = LABELS[test.effect.score]
    title = f"Most affected items: {test.effect.name}, {test.effect.task}, {test.effect.condition}"
    columns = ("Item", "Number", "Answer", f"{label}, set", f"{label}, controls' mean", "Image")
    note = f"harness-heads show RUN {task.items[chosen[0]]} draws any item." if chosen else ""
    return Table(f"items-{test.effect.score}", title, columns, tuple(rows), note, "figures 1 and 8 of arXiv:2610.13111")


def _finite(value: float) -> float:
    return value if np.isfinite(value) else -np.inf
