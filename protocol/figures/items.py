"""How item scores are spread: MCQ probabilities are rarely normal, and a mean may hide two groups."""

from __future__ import annotations

import numpy as np

from harness_heads.protocol.arrays import Floats
from harness_heads.protocol.svg import Canvas, Figure, Scale

WIDTH, HEIGHT = 460.0, 190.0
BINS = 24


def items_figure(own: Floats, null: Floats, name: str, label: str, id: str) -> Figure:
    """Histogram of the set's item scores over that of its controls, all draws pooled.

    Args:
        own: item scores of the set, shape [N].
        null: item scores of its controls, shape [N, R]; R may be 0.
    """
    own, pooled = own[np.isfinite(own)], null[np.isfinite(null)]
    low = float(min(own.min(initial=0.0), pooled.min(initial=0.0), -0.05))
    high = float(max(own.max(initial=0.0), pooled.max(initial=0.0), 0.05))
    edges = np.linspace(low, high, BINS + 1)
    shares = [np.histogram(v, edges)[0] / max(1, v.size) for v in (own, pooled)]
    top = max(float(s.max(initial=0.0)) for s in shares) or 1.0
    scale_x, scale_y = Scale(low, high, 34, WIDTH - 10), Scale(0, top, HEIGHT - 32, 10)
    canvas = Canvas(WIDTH, HEIGHT)
    for mark in np.linspace(0, top, 4):
        canvas.line(34, scale_y(mark), WIDTH - 10, scale_y(mark), "grid")
        canvas.text(30, scale_y(mark) + 4, f"{100 * mark:.0f}%", "tick", "end")
    for kind, values in (("histback", shares[1]), ("histset", shares[0])):
        for i, share in enumerate(values):
            x, width = scale_x(edges[i]), scale_x(edges[i + 1]) - scale_x(edges[i])
            inset = 0 if kind == "histback" else width * 0.22
            canvas.rect(x + inset, scale_y(share), width - 2 * inset, scale_y(0) - scale_y(share), kind)
    near = 0.08 * (high - low)  # labels closer than this would run into each other
    for mark, anchor in ((low, "start"), (0.0, "middle"), (high, "end")):
        if anchor != "middle" or (low + near < 0 < high - near):
            canvas.text(scale_x(mark), HEIGHT - 17, f"{mark:.2f}", "tick", anchor)
    canvas.text(WIDTH / 2, HEIGHT - 4, f"{label} of one item", "tick", "middle")
    quartiles = np.quantile(own, [0.25, 0.5, 0.75]) if own.size else [np.nan] * 3
    alt = (
        f"{name}: item {label} has quartiles {quartiles[0]:.3f}, {quartiles[1]:.3f}, {quartiles[2]:.3f}; "
        f"{np.mean(own > 0.5):.0%} of items are above 0.5"
    )
    return Figure(
        id, f"Items of {name}", canvas.svg(alt), alt, "Narrow bars: the set. Wide bars: its control sets pooled."
    )
