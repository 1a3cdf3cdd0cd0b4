"""The overview of a setting, drawn and in words: where the heads are, how sparse and how stable they are."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from harness_heads.discovery.drawing import bars, heat_map, histogram, svg, text
from harness_heads.discovery.overlap import SplitHalf
from harness_heads.discovery.score import half_mass_share
from harness_heads.heads import HeadSet

HIGH_SCORE = 5e-3  # paper B, Figure 5: what it calls a high score
NEGLIGIBLE = 0.1  # of the largest score: ours, the paper's own threshold is not in its text


def draw(name: str, scores: NDArray[np.float64], head_set: HeadSet) -> str:
    """SVG: heat map with the set framed, score histogram with the cut, heads a layer, heads a key/value group."""
    layers, heads = scores.shape
    cell = max(6.0, min(22.0, 420 / max(layers, heads)))
    parts = [text(12, 20, f"{head_set.name}: {len(head_set)} of {head_set.geometry.total} heads", size=14)]
    mapped, wide, tall = heat_map(scores, marked=[(h.layer, h.head) for h in head_set], x=8, y=30, cell=cell)
    parts += mapped
    right = wide + 40
    cut = min(float(scores[h.layer, h.head]) for h in head_set)
    parts.append(text(right, 40, "scores of all heads (log counts), cut of the set"))
    parts += histogram(scores.ravel(), cut, x=right, y=44, width=300, height=130, label="score")
    used = [(f"L{layer}", n) for layer, n in enumerate(head_set.per_layer) if n]
    drawn, height = bars([w for w, _ in used], [n for _, n in used], x=right, y=190, width=300, title="heads a layer")
    parts += drawn
    bottom = 190 + height
    if head_set.geometry.kv_heads is not None:
        profile = kv_profile(head_set)
        labels = [str(size) for size in sorted(profile)]
        drawn, height = bars(
            labels,
            [profile[int(w)] for w in labels],
            x=right,
            y=bottom + 12,
            width=300,
            title="key/value groups that hold 1, 2, ... heads of the set",
        )
        parts += drawn
        bottom += 12 + height
    return svg(right + 320, max(30 + tall, bottom) + 16, parts, f"Discovery {name}")


def kv_profile(head_set: HeadSet) -> dict[int, int]:
    """How many key/value groups hold 1, 2, ... heads of the set."""
    groups = Counter((h.layer, head_set.geometry.kv_group(h)) for h in head_set)
    return dict(Counter(groups.values()))


def words(
    description: str, scores: NDArray[np.float64], head_set: HeadSet, samples: int, stability: SplitHalf | None
) -> str:
    """Markdown: what was found."""
    values = scores[~np.isnan(scores)]
    largest = float(values.max())
    half = half_mass_share(scores)
    lines = [
        f"# {head_set.name}",
        "",
        f"{description}. {samples} samples; {len(head_set)} of {head_set.geometry.total} heads "
        f"({len(head_set) / head_set.geometry.total:.1%}) of {head_set.model.id}. Identity {head_set.key}.",
        "",
        "![overview](overview.svg)",
        "",
        "## Sparsity",
        "",
        f"- Largest score {largest:.4g}, median {float(np.median(values)):.4g}; cut of the set "
        f"{float(scores[head_set.heads[-1].layer, head_set.heads[-1].head]):.4g}.",
        f"- {_share(values > HIGH_SCORE)} of heads score above {HIGH_SCORE:g}; "
        f"{_share(values > NEGLIGIBLE * largest)} above {NEGLIGIBLE:.0%} of the largest score.",
        "- "
        + (
            "No score is positive."
            if math.isnan(half)
            else f"{half:.1%} of heads hold half of the positive score mass."
        ),
        f"- Layers used: {', '.join(f'{layer} ({n})' for layer, n in enumerate(head_set.per_layer) if n)}.",
    ]
    if head_set.geometry.kv_heads is not None:
        profile = kv_profile(head_set)
        groups = sum(profile.values())
        spread = ", ".join(f"{count} with {size}" for size, count in sorted(profile.items()))
        lines.append(f"- The set lies in {groups} key/value groups ({spread} of its heads).")
    lines += ["", "## Stability", ""]
    if stability is None:
        lines.append("Not estimable: split halves need at least two clusters and a flat set.")
    else:
        own = stability.own[0]
        lines.append(
            f"Two halves of {stability.half} samples or more share {own:.1f} of {stability.k} heads "
            f"({own / stability.k:.0%}; mean of {stability.splits} half-splits); uniform sets of that size share "
            f"{stability.chance:.1f}."
        )
    rows = [(i, str(h), s) for i, (h, s) in enumerate(zip(head_set.heads, head_set.scores, strict=True), start=1)]
    lines += ["", "## Heads, best first", "", tabulate(rows, headers=("rank", "head", "score"), tablefmt="github"), ""]
    return "\n".join(lines)


def _share(mask: NDArray[np.bool_]) -> str:
    return f"{float(mask.mean()):.1%}"
