"""A score along k or beta, the set's line over its controls' band."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness_heads.protocol.analysis import Test
from harness_heads.protocol.formats import number
from harness_heads.protocol.svg import Canvas, Figure, Scale, padded, tick_label, ticks

WIDTH, HEIGHT = 460.0, 230.0


def sweep_figure(points: Sequence[tuple[str, Test]], id: str, title: str, axis: str) -> Figure:
    """Steps are evenly spaced: betas span orders of magnitude and end at the hard limit, which has no place on a line.

    Args:
        points: label and test of each step, in order.
    """
    every = [v for _, t in points for v in (*t.effect.controls, t.effect.mean, t.effect.low, t.effect.high)]
    low, high = padded(every)
    scale = Scale(low, high, HEIGHT - 42, 10)
    left, right = 48.0, WIDTH - 16
    step = (right - left) / max(1, len(points) - 1)
    xs = [left + (right - left) / 2] if len(points) == 1 else [left + i * step for i in range(len(points))]
    canvas = Canvas(WIDTH, HEIGHT)
    marks = ticks(low, high)
    for mark in marks:
        canvas.line(left - 8, scale(mark), right + 8, scale(mark), "grid")
        canvas.text(left - 12, scale(mark) + 4, tick_label(mark, marks), "tick", "end")
    canvas.line(left - 8, scale(0), right + 8, scale(0), "zero")
    banded = [(x, t.effect) for x, (_, t) in zip(xs, points, strict=True) if t.effect.r > 0]
    top = [(x, scale(max(e.controls))) for x, e in banded]
    bottom = [(x, scale(min(e.controls))) for x, e in reversed(banded)]
    canvas.path(top + bottom, "bandfill", closed=True)
    canvas.path([(x, scale(e.control_mean)) for x, e in banded], "bandline")
    canvas.path([(x, scale(t.effect.mean)) for x, (_, t) in zip(xs, points, strict=True)], "setline")
    for x, (label, test) in zip(xs, points, strict=True):
        e = test.effect
        if not math.isnan(e.low):
            canvas.line(x, scale(e.low), x, scale(e.high), "whisker")
        canvas.diamond(x, scale(e.mean), 5, "set", f"{axis} {label}: {e.mean:.4f}")
        canvas.text(x, HEIGHT - 24, label, "tick", "middle")
    canvas.text((left + right) / 2, HEIGHT - 8, axis, "tick", "middle")
    alt = f"{title}: " + "; ".join(
        f"{axis} {label}: {number(t.effect.mean)}, controls {number(min(t.effect.controls, default=math.nan))} to "
        f"{number(max(t.effect.controls, default=math.nan))}"
        for label, t in points
    )
    return Figure(
        id, title, canvas.svg(alt), alt, "Line: the set with its item interval. Band: smallest to largest control set."
    )
