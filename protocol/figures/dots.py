"""Each set against all its individual control sets (the shape of paper A's Figure 3, with every draw shown)."""

from __future__ import annotations

from collections.abc import Sequence

from harness_heads.protocol.analysis import Test
from harness_heads.protocol.formats import counted, interval, number, p_value
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.svg import Canvas, Figure, Scale, padded, shorten, tick_label, ticks

WIDTH = 460.0
ROW = 46.0
LEFT, RIGHT = 10.0, 450.0


def dots_figure(tests: Sequence[Test], id: str, title: str) -> Figure:
    """One row a test: every control draw a dot, their mean and SD a bar, the set a diamond with its item interval."""
    every = [v for t in tests for v in (*t.effect.controls, t.effect.mean, t.effect.low, t.effect.high)]
    low, high = padded(every)
    scale = Scale(low, high, LEFT, RIGHT)
    canvas = Canvas(WIDTH, ROW * len(tests) + 40)
    bottom = ROW * len(tests) + 8
    marks = ticks(low, high)
    for mark in marks:
        canvas.line(scale(mark), 4, scale(mark), bottom, "grid")
        canvas.text(scale(mark), bottom + 14, tick_label(mark, marks), "tick", "middle")
    canvas.line(scale(0), 4, scale(0), bottom, "zero")
    for row, test in enumerate(tests):
        _row(canvas, test, scale, row * ROW + 6)
    label = LABELS[tests[0].effect.score] if len({t.effect.score for t in tests}) == 1 else "score"
    canvas.text(RIGHT, bottom + 26, label, "tick", "end")
    return Figure(
        id,
        title,
        canvas.svg("; ".join(_sentence(t) for t in tests)),
        "; ".join(_sentence(t) for t in tests),
        "Diamond: the set, with its 95 % interval over items. Dots: its individual control sets, all of them. "
        "Bar: their mean and one SD of individual sets.",
    )


def _row(canvas: Canvas, test: Test, scale: Scale, top: float) -> None:
    e = test.effect
    name = shorten(f"{e.name.split('/')[-1]} · {e.condition}", 48)
    canvas.text(LEFT, top + 9, name, "label")
    canvas.text(
        RIGHT, top + 9, f"p = {p_value(test.p, 'no controls')}" if e.r < 2 else f"p = {p_value(test.p)}", "label", "end"
    )
    middle = top + 27
    if e.r > 1:
        a, b = scale(e.control_mean - e.control_sd), scale(e.control_mean + e.control_sd)
        canvas.rect(a, middle - 9, b - a, 18, "band")
        canvas.line(scale(e.control_mean), middle - 9, scale(e.control_mean), middle + 9, "bandline")
    for draw, value in enumerate(e.controls):
        # a fixed spread of heights, so that draws of equal score stay visible and reports stay equal
        canvas.circle(scale(value), middle + (draw * 7 % 13 - 6) * 1.1, 2.2, "draw", f"control {draw}: {value:.4f}")
    if e.low == e.low:
        canvas.line(scale(e.low), middle, scale(e.high), middle, "whisker")
    canvas.diamond(scale(e.mean), middle, 6, "set", f"{e.name}: {e.mean:.4f}")


def _sentence(test: Test) -> str:
    e = test.effect
    against = (
        f"{counted(e.r, 'control')}, mean {number(e.control_mean)}, SD {number(e.control_sd)}" if e.r else "no controls"
    )
    return f"{e.name}, {e.condition}: {LABELS[e.score]} {number(e.mean)} {interval(e.low, e.high)}; {against}"
