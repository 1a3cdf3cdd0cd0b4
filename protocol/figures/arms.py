"""Arms without intervention against their audit ranges, and NCS by group of masked rows."""

from __future__ import annotations

from collections.abc import Sequence

from harness_heads.protocol.analysis import TaskAnalysis, Test
from harness_heads.protocol.formats import number
from harness_heads.protocol.svg import Canvas, Figure, Scale, padded, shorten, tick_label, ticks

WIDTH = 460.0


def arms_figure(task: TaskAnalysis, id: str) -> Figure:
    """Mean P(c) of every arm as a bar, the accepted range as a frame."""
    ranges = {a.arm: a for a in task.audits}
    row, left = 28.0, 112.0
    scale = Scale(0.0, 1.0, left, WIDTH - 46)
    canvas = Canvas(WIDTH, row * len(task.levels) + 24)
    bottom = row * len(task.levels) + 4
    for mark in (0.0, 0.25, 0.5, 0.75, 1.0):
        canvas.line(scale(mark), 2, scale(mark), bottom, "grid")
        canvas.text(scale(mark), bottom + 14, f"{mark:g}", "tick", "middle")
    texts = []
    for i, level in enumerate(task.levels):
        y = i * row + 5
        canvas.text(left - 6, y + 13, shorten(level.arm, 18), "label", "end")
        audit = ranges.get(level.arm)
        if audit is not None:
            canvas.rect(scale(audit.low), y - 1, scale(audit.high) - scale(audit.low), 20, "range")
        kind = "bar" if audit is None or audit.passed else "barbad"
        canvas.rect(scale(0), y + 3, scale(level.p) - scale(0), 12, kind, f"{level.arm}: {level.p:.4f}")
        canvas.text(scale(1) + 5, y + 13, number(level.p), "label")
        state = "" if audit is None else f" ({'in' if audit.passed else 'OUT OF'} range {audit.expected})"
        texts.append(f"{level.arm} {number(level.p)}{state}")
    alt = f"P(c) without intervention, {task.evidence.task}: " + "; ".join(texts)
    return Figure(
        id,
        f"Arms of {task.evidence.task} without intervention",
        canvas.svg(alt),
        alt,
        "Bars: mean probability of the right option. Frames: the accepted range of the audit.",
    )


def rows_figure(tests: Sequence[Test], id: str, title: str) -> Figure:
    """One score by group of masked rows, item intervals, controls as a band (paper A, Table 13)."""
    row, left = 30.0, 130.0
    every = [v for t in tests for v in (t.effect.low, t.effect.high, t.effect.mean, *t.effect.controls)]
    low, high = padded(every)
    scale = Scale(low, high, left, WIDTH - 10)
    canvas = Canvas(WIDTH, row * len(tests) + 24)
    bottom = row * len(tests) + 4
    marks = ticks(low, high, 4)
    for mark in marks:
        canvas.line(scale(mark), 2, scale(mark), bottom, "grid")
        canvas.text(scale(mark), bottom + 14, tick_label(mark, marks), "tick", "middle")
    canvas.line(scale(0), 2, scale(0), bottom, "zero")
    texts = []
    for i, test in enumerate(tests):
        e = test.effect
        y = i * row + 17
        canvas.text(left - 6, y + 4, shorten(rows_of(e.condition), 20), "label", "end")
        if e.r > 1:
            a, b = scale(min(e.controls)), scale(max(e.controls))
            canvas.rect(a, y - 7, b - a, 14, "band")
        if e.low == e.low:
            canvas.line(scale(e.low), y, scale(e.high), y, "whisker")
        canvas.diamond(scale(e.mean), y, 5, "set", f"{e.mean:.4f}")
        texts.append(f"{rows_of(e.condition)}: {number(e.mean)}")
    alt = f"{title}: " + "; ".join(texts)
    return Figure(
        id, title, canvas.svg(alt), alt, "Diamond: the set with its item interval. Band: range of its controls."
    )


def rows_of(condition: str) -> str:
    """Row scope of a condition's name, in words."""
    for part in condition.split(":"):
        if part.startswith("rows="):
            return part.removeprefix("rows=").replace("+", " + ") + " rows"
    return "all rows"
