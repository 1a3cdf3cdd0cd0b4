"""Intervals of every kind, stability of the rank p, and what the run could have shown."""

from __future__ import annotations

import math

from harness_heads.protocol import statistics as st
from harness_heads.protocol.analysis import Analysis
from harness_heads.protocol.formats import Cell, count_cell, counted, interval, interval_cell, p_value, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.sections.results import label
from harness_heads.protocol.tables import Table


def intervals_section(a: Analysis) -> Section:
    """Two tables: intervals over items and over items x draws; power."""
    rows, power = [], []
    for t in a.leading:
        e, b = t.effect, t.resampled
        why = e.reasons.get("mean", e.reasons.get("low", "no control sets" if e.r == 0 else "one control draw"))
        name = (word(label(a, t)), word(f"{e.task}, {e.condition}"), word(LABELS[e.score]))
        rows.append(
            (
                *name,
                _pair(e.low, e.high, why),
                _pair(b.percentile_low, b.percentile_high, why),
                _pair(b.bca_low, b.bca_high, "no spread over items"),
                interval_cell(b.difference, b.crossed_low, b.crossed_high, reason=why),
                _pair(b.band_low, b.band_high, why),
                Cell(
                    f"{p_value(b.p_median, why)} [{p_value(b.p_low)}, {p_value(b.p_high)}]",
                    (b.p_median, b.p_low, b.p_high),
                )
                if not math.isnan(b.p_median)
                else Cell(p_value(b.p_median, why), (b.p_median,)),
                value_cell(b.draw_sd, 4, why),
                Cell(f"{e.clusters} of {e.n}", (float(e.clusters), float(e.n))),
            )
        )
        allowed = st.allowed_exceedances(e.r, a.alpha, t.m) if e.r else -1
        power.append(
            (
                *name,
                value_cell(t.detectable, 3, t.detectable_reason or why),
                word(
                    t.detectable_reason or ("" if allowed < 0 else f"{counted(allowed, 'control')} may reach the set")
                ),
                value_cell(st.detectable_by_items(e.n, e.sd, a.alpha), 3, "no spread over items"),
                count_cell(st.minimum_controls(a.alpha, t.m)),
                count_cell(st.minimum_controls(a.alpha, t.m, 1)),
            )
        )
    columns: tuple[str, ...] = (
        "Set",
        "Task, condition",
        "Score",
        "t over items",
        "Bootstrap",
        "BCa",
        "Set - controls, items x draws",
    )
    columns += (
        "Band of a fresh control",
        "Rank p over item resamples [90 %]",
        "SD between control sets",
        "Clusters of items",
    )
    note = (
        "Items of one image are resampled together. The crossed interval resamples items and control draws; the band "
        "is where one more control set is expected. The SD between control sets has their item noise taken off."
    )
    shown = (
        Table("intervals", "Intervals", columns, tuple(rows), note, "Table 11 of arXiv:2610.13111"),
        Table(
            "power",
            "What this run could have shown",
            (
                "Set",
                "Task, condition",
                "Score",
                "Effect over controls",
                "Why",
                "Effect over 0",
                "Least R",
                "Least R, 1 above",
            ),
            tuple(power),
            "Effects shown with probability .8 at the report's level: by the adjusted rank test and by a t test over "
            "items. Least R: controls needed for the adjusted floor to reach the level, and to survive one control "
            "above the set.",
        ),
    )
    return Section("intervals", "Intervals and power", "", (), shown if rows else ())


def _pair(low: float, high: float, why: str) -> Cell:
    return Cell(interval(low, high, reason=why), (low, high))
