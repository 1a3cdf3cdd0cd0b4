"""Sets against each other on the same items."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from harness_heads.protocol import statistics as st
from harness_heads.protocol.analysis import Analysis, Test
from harness_heads.protocol.formats import Cell, interval_cell, p_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.resampled import SEED
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.tables import Table

MOST_PAIRS = 66  # twelve settings


def comparisons_section(a: Analysis) -> Section:
    """Paired tests between sets of one score and condition."""
    groups: dict[tuple[object, ...], list[Test]] = {}
    for t in a.leading:
        items = a.task_of(t).evidence.items
        groups.setdefault((t.model, t.effect.task, t.effect.score, t.effect.condition, items), []).append(t)
    rows: list[tuple[Cell, ...]] = []
    for tests in groups.values():
        for one, two in list(combinations(tests, 2))[:MOST_PAIRS]:
            first, second = _values(a, one), _values(a, two)
            codes = st.cluster_codes(a.task_of(one).evidence.clusters)
            d = first - second
            found = st.paired_t(d, codes)
            flips = st.sign_flip(d, np.random.default_rng([SEED, len(rows)]), 10_000, codes)
            rows.append(
                (
                    word(f"{one.effect.name} - {two.effect.name}"),
                    word(f"{one.effect.task}, {one.effect.condition}"),
                    word(LABELS[one.effect.score]),
                    interval_cell(found.difference, found.low, found.high, reason=found.reason),
                    p_cell(found.p, found.reason),
                    p_cell(st.wilcoxon_p(d), "all differences are zero"),
                    p_cell(flips.p),
                )
            )
    columns = ("Pair", "Task, condition", "Score", "Difference [95 % CI]", "Paired t p", "Wilcoxon p", "Sign-flip p")
    note = f"Scope: {st.SCOPE}. Two-sided, uncorrected; sign flips have the floor 1/10,001."
    tables = (Table("paired", "Sets against each other", columns, tuple(rows), note),) if rows else ()
    return Section("paired", "Sets against each other", "", (), tables)


def _values(a: Analysis, test: Test) -> st.Floats:
    table = a.task_of(test).table(test.effect.score, test.effect.condition)
    assert table is not None
    return table.of([test.effect.key])[:, 0]
