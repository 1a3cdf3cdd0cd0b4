"""Layer x head map of discovery scores with the set marked; overlap matrix of sets."""

from __future__ import annotations

from collections.abc import Sequence

from harness_heads.heads import Head, HeadSet
from harness_heads.protocol.svg import Canvas, Figure, shorten

WIDTH = 460.0


def head_map(heads: HeadSet, id: str) -> Figure:
    """Score of every head where the set carries them, else of the set's own heads; members are outlined."""
    geometry = heads.geometry
    layers, columns = len(geometry.heads), max(geometry.heads)
    left, top = 30.0, 16.0
    step = min(22.0, (WIDTH - left - 6) / columns)
    canvas = Canvas(WIDTH, top + layers * step + 8)
    scores = _scores(heads)
    high = max(scores.values(), default=0.0)
    members = set(heads.heads)
    for column in range(0, columns, 4 if columns > 8 else 1):
        canvas.text(left + (column + 0.5) * step, top - 5, str(column), "tick", "middle")
    for layer in range(layers):
        if layer % (4 if layers > 12 else 1) == 0:
            canvas.text(left - 5, top + (layer + 0.5) * step + 4, str(layer), "tick", "end")
        for index in geometry.pool(layer):
            head = Head(layer, index)
            x, y = left + index * step, top + layer * step
            canvas.rect(x + 0.5, y + 0.5, step - 1, step - 1, "cellback")
            if head in scores and high > 0:
                share = max(0.0, scores[head] / high)
                canvas.rect(
                    x + 0.5, y + 0.5, step - 1, step - 1, "heat", f"{head}: {scores[head]:.4g}", round(share, 2)
                )
            if head in members:
                canvas.rect(x + 1.2, y + 1.2, step - 2.4, step - 2.4, "member", f"{head}, in the set")
    profile = ", ".join(f"layer {i}: {n}" for i, n in enumerate(heads.per_layer) if n)
    known = "every head's score" if len(scores) > len(members) else "the set's own scores" if scores else "no scores"
    alt = f"{heads.name}: {len(heads)} of {geometry.total} heads; {profile}"
    note = f"Rows are layers, columns are heads; outlined heads are in the set. Shading: {known}."
    return Figure(id, f"Heads of {heads.name}", canvas.svg(alt), alt, note)


def overlap_figure(sets: Sequence[HeadSet], id: str) -> Figure:
    """Shared heads of every pair of sets (paper A, Figure 2)."""
    n = len(sets)
    left = 150.0
    step = min(56.0, (WIDTH - left - 4) / n)
    canvas = Canvas(WIDTH, 22 + n * step + 4)
    texts = []
    for i, a in enumerate(sets):
        canvas.text(left - 6, 22 + (i + 0.5) * step + 4, shorten(a.name.split("/")[-1], 20), "label", "end")
        canvas.text(left + (i + 0.5) * step, 15, str(i + 1), "tick", "middle")
        for j, b in enumerate(sets):
            shared = len(set(a.heads) & set(b.heads))
            share = shared / max(1, min(len(a), len(b)))
            x, y = left + j * step, 22 + i * step
            canvas.rect(x + 1, y + 1, step - 2, step - 2, "cellback")
            canvas.rect(
                x + 1, y + 1, step - 2, step - 2, "heat", f"{a.name} and {b.name}: {shared}", round(0.65 * share, 2)
            )
            canvas.text(x + step / 2, y + step / 2 + 4, str(shared), "label", "middle")
            if j > i:
                texts.append(f"{a.name} and {b.name} share {shared}")
    alt = "; ".join(texts)
    return Figure(id, "Shared heads of the sets", canvas.svg(alt), alt, "Columns are in the order of the rows.")


def _scores(heads: HeadSet) -> dict[Head, float]:
    facts = heads.provenance.get("facts")
    if isinstance(facts, dict) and facts.get("scores"):
        rows = facts["scores"]
        return {Head(layer, h): float(v) for layer, row in enumerate(rows) for h, v in enumerate(row)}
    return {h: float(s) for h, s in zip(heads.heads, heads.scores, strict=True) if s is not None}
