"""The sets themselves: where their heads lie, and what they share (paper A, Tables 15, 20 and 21, Figures 2 and 6)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from harness_heads.heads import Geometry, HeadSet
from harness_heads.protocol import statistics as st
from harness_heads.protocol.analysis import Analysis, Test
from harness_heads.protocol.figures import head_map, overlap_figure
from harness_heads.protocol.formats import Cell, count_cell, p_cell, percent, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.tables import Table

MOST_MAPS = 12


def tested_sets(a: Analysis) -> tuple[HeadSet, ...]:
    """Tested sets with their scores and provenance, each once, in the runs' order."""
    out: dict[tuple[str, str], HeadSet] = {}
    for run in a.evidence.runs:
        for entry in run.tested:
            out.setdefault((str(run.model["id"]), entry.key), run.sources.get(entry.key, entry.heads))
    return tuple(out.values())


def sets_section(a: Analysis) -> Section:
    """Maps and layer profiles."""
    sets = tested_sets(a)
    rows = []
    for heads in sets:
        profile = ", ".join(f"{layer}: {n}" for layer, n in enumerate(heads.per_layer) if n)
        groups = _kv_groups(heads)
        share = len(heads) / heads.geometry.total
        rows.append(
            (
                word(heads.name),
                word(heads.model.id),
                count_cell(len(heads)),
                Cell(percent(share), (share,)),
                word(profile),
                word(groups),
                word(str(heads.provenance.get("kind", "not stated"))),
                word(heads.key),
            )
        )
    columns = ("Set", "Model", "k", "k / M", "Heads per layer", "KV groups", "Origin", "Identity")
    figures = tuple(head_map(heads, f"map-{i}") for i, heads in enumerate(sets[:MOST_MAPS]))
    note = "Identity: first 16 hex digits of the digest of model, geometry and heads."
    tables = (Table("sets", "Head sets", columns, tuple(rows), note),) if rows else ()
    return Section("sets", "Head sets", "", figures if rows else (), tables)


def overlap_section(a: Analysis) -> Section:
    """Shared heads of every pair against chance, ceilings where discovery folders give them, shared / only parts."""
    by_model: dict[tuple[str, Geometry], list[HeadSet]] = {}
    for heads in tested_sets(a):
        by_model.setdefault((heads.model.id, heads.geometry), []).append(heads)
    figures, rows = [], []
    for number, ((model, geometry), sets) in enumerate(by_model.items()):
        if len(sets) < 2:
            continue
        figures.append(overlap_figure(sets, f"overlap-{number}"))
        for one, two in combinations(sets, 2):
            shared = len(set(one.heads) & set(two.heads))
            flat = st.uniform_chance(len(one), len(two), geometry.total)
            layered = st.layer_chance(one.per_layer, two.per_layer, geometry.heads)
            rows.append(
                (
                    word(model),
                    word(f"{one.name} / {two.name}"),
                    count_cell(shared),
                    Cell(f"{flat.mean:.2f} ({flat.low} to {flat.high})", (flat.mean, flat.sd)),
                    Cell(f"{layered.mean:.2f} ({layered.low} to {layered.high})", (layered.mean, layered.sd)),
                    word("yes" if shared > layered.high else "no"),
                )
            )
    columns = ("Model", "Pair", "Shared heads", "Chance, uniform (95 %)", "Chance, same layers (95 %)", "Above chance")
    note = (
        "Chance: two unrelated sets of these sizes, anywhere or with these layer profiles. Overlap is no evidence of "
        "function."
    )
    tables = (
        [Table("overlap", "Shared heads", columns, tuple(rows), note, "Tables 2, 21 of arXiv:2610.13111")]
        if rows
        else []
    )
    parts = _parts(a)
    if parts is not None:
        tables.append(parts)
    for i, folder in enumerate(a.evidence.discovery):
        made = ceilings(folder, i)
        if made is not None:
            tables.append(made)
    return Section("overlap", "What the sets share", "", tuple(figures), tuple(tables))


def _parts(a: Analysis) -> Table | None:
    """Shared / only parts, where a run tested them as sets of their own (paper A, Table 15)."""
    by_heads: dict[tuple[int, str, str, frozenset[object]], Test] = {}
    for t in a.leading:
        entry = next(e for e in a.evidence.runs[t.run].tested if e.key == t.effect.key)
        by_heads[(t.run, t.effect.task, t.effect.condition, frozenset(entry.heads.heads))] = t
    rows = []
    for (run, task, condition, first), (run2, task2, condition2, second) in combinations(by_heads, 2):
        if (run, task, condition) != (run2, task2, condition2):
            continue
        pieces = (first & second, first - second, second - first)
        tests = [by_heads.get((run, task, condition, piece)) for piece in pieces]
        if not any(tests) or not all(pieces):
            continue
        names = [by_heads[(run, task, condition, s)].effect.name for s in (first, second)]
        cells = [word(" / ".join(names)), word(f"{len(pieces[0])} / {len(pieces[1])} / {len(pieces[2])}")]
        for test in tests:
            cells += _above_controls(a, test)
        rows.append(tuple(cells))
    columns: tuple[str, ...] = ("Pair", "Shared / first only / second only")
    columns += tuple(f"{part}{what}" for part in ("Shared", "First only", "Second only") for what in ("", ", p"))
    note = (
        "Score above the mean of same-size controls, paired one-sided p over items, uncorrected. Parts differ in size."
    )
    return (
        Table("parts", "Shared and own heads", columns, tuple(rows), note, "Table 15 of arXiv:2610.13111")
        if rows
        else None
    )


def _above_controls(a: Analysis, test: Test | None) -> list[Cell]:
    from harness_heads.protocol.effects import control_keys

    if test is None or test.effect.r == 0:
        return [word("not tested"), word("-")]
    task = a.task_of(test)
    table = task.table(test.effect.score, test.effect.condition)
    assert table is not None
    null = table.of(control_keys(task.run, test.effect.key, test.effect.family)).mean(axis=1)
    found = st.paired_t(table.of([test.effect.key])[:, 0] - null, st.cluster_codes(task.evidence.clusters), "upper")
    return [value_cell(found.difference), p_cell(found.p, found.reason)]


def ceilings(folder: Mapping[str, Any], index: int) -> Table | None:
    """Split-half ceilings of a discovery folder: rows of {pair, overlap, self_a, self_b, low, high, chance}."""
    pairs = folder.get("overlaps")
    if not isinstance(pairs, list) or not pairs:
        return None
    rows = []
    for pair in pairs:
        c = st.ceiling_fraction(pair["overlap"], pair["self_a"], pair["self_b"], pair.get("chance", 0.0))
        rows.append(
            (
                word(_what_changes(pair["pair"])),
                word(pair["pair"]),
                Cell(
                    f"{pair['overlap']:.1f} [{pair['low']:.0f}, {pair['high']:.0f}]",
                    (pair["overlap"], pair["low"], pair["high"]),
                ),
                value_cell(c.ceiling, 1),
                value_cell(c.fraction, 2),
                value_cell(c.corrected, 2),
            )
        )
    columns = (
        "What changes",
        "Pair",
        "Shared heads [2.5, 97.5 percentile]",
        "Ceiling",
        "Fraction",
        "Fraction above chance",
    )
    note = "Percentiles over half splits are no confidence interval: the splits reuse the same strips."
    return Table(
        f"ceiling-{index}",
        "Overlap against the split-half ceiling",
        columns,
        tuple(rows),
        note,
        "Table 20 of arXiv:2610.13111",
    )


def _what_changes(pair: str) -> str:
    """Which of corpus, query and source two settings differ in, where their names say it (``cm-ref-qsp``)."""
    one, two = (name.split("/")[-1].split("@")[0].split("-") for name in pair.split(" / "))
    if not len(one) == len(two) == 3:
        return "-"
    return " and ".join(what for what, x, y in zip(("corpus", "query type", "source"), one, two, strict=True) if x != y)


def _kv_groups(heads: HeadSet) -> str:
    if not heads.geometry.kv_heads:
        return "unknown"
    return str(len({(h.layer, heads.geometry.kv_group(h)) for h in heads}))
