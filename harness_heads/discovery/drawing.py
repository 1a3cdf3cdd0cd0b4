"""Small SVG pictures without any plotting library; colours hold on light and on dark ground."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_TEXT = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'


def svg(width: float, height: float, parts: Sequence[str], title: str) -> str:
    """A whole SVG document."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" style="color: #333; background: #fff">\n<title>{html.escape(title)}</title>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 11) -> str:
    """Words at a point."""
    style = _TEXT.replace('"11"', f'"{size}"')
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {style}>{html.escape(words)}</text>'


def rectangle(x: float, y: float, w: float, h: float, fill: str, extra: str = "", tip: str = "") -> str:
    """A filled rectangle, with a tooltip."""
    inner = f"<title>{html.escape(tip)}</title>" if tip else ""
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}" fill="{fill}" {extra}>{inner}</rect>'


def colour(share: float) -> str:
    """A colour for 0 (pale) to 1 (dark), lightness falling steadily so that it prints in grey."""
    stops = ((247, 251, 255), (158, 202, 225), (49, 130, 189), (8, 48, 107))
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    mix = [round(a + (b - a) * (at - low)) for a, b in zip(stops[low], stops[low + 1], strict=True)]
    return f"rgb({mix[0]},{mix[1]},{mix[2]})"


def heat_map(
    values: NDArray[np.float64],
    *,
    marked: Sequence[tuple[int, int]] = (),
    x: float = 0.0,
    y: float = 0.0,
    cell: float = 12.0,
    row_word: str = "layer",
    column_word: str = "head",
) -> tuple[list[str], float, float]:
    """An L x H map; NaN cells are left out, marked cells are framed; below, the colours' range.

    Returns:
        SVG parts, and the width and height that they take.
    """
    rows, columns = values.shape
    left, top = x + 44, y + 20
    biggest = float(np.nanmax(values))
    largest = biggest if biggest > 0 else 1.0
    parts = [text(left, y + 10, f"{column_word} 0 to {columns - 1}")]
    frames = set(marked)
    framed = []  # drawn last: a neighbour would cover half of a frame
    for r in range(rows):
        if r % max(1, rows // 12) == 0:
            parts.append(text(left - 6, top + r * cell + cell * 0.8, f"{row_word if r == 0 else ''} {r}", "end", 10))
        for c in range(columns):
            value = float(values[r, c])
            if math.isnan(value):
                continue
            at = (left + c * cell, top + r * cell, cell, cell, colour(value / largest))
            tip = f"L{r}.{c}: {value:.4g}"
            if (r, c) in frames:
                framed.append(rectangle(*at, 'stroke="#d62728" stroke-width="1.6"', tip))
            else:
                parts.append(rectangle(*at, 'stroke="#fff" stroke-width="0.3"', tip))
    parts += framed
    under = top + rows * cell + 8
    parts.append(text(left, under + 9, "0", size=10))
    parts += [
        rectangle(left + 10 + i * 12, under, 12, 10, colour(i / 7), 'stroke="#ccc" stroke-width="0.3"')
        for i in range(8)
    ]
    framed_words = "; framed: the set" if framed else ""
    parts.append(text(left + 112, under + 9, f"{largest:.3g}{framed_words}", size=10))
    return parts, 44 + columns * cell, 20 + rows * cell + 24


def histogram(
    values: NDArray[np.float64], cut: float, *, x: float, y: float, width: float, height: float, label: str
) -> list[str]:
    """Counts of values on a logarithmic count axis, with the cut as a line."""
    finite = values[np.isfinite(values)]
    counts, edges = np.histogram(finite, bins=40)
    tallest = math.log1p(float(counts.max()))
    span = float(edges[-1] - edges[0]) or 1.0
    base = y + height - 16
    parts = []
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        if count:
            tall = (height - 30) * math.log1p(float(count)) / tallest
            at = x + width * float(low - edges[0]) / span
            wide = width * float(high - low) / span
            parts.append(
                rectangle(at, base - tall, wide, tall, "#3182bd", tip=f"{low:.3g} to {high:.3g}: {count} heads")
            )
    at = x + width * (cut - float(edges[0])) / span
    parts.append(
        f'<line x1="{at:.2f}" x2="{at:.2f}" y1="{y + 8:g}" y2="{base:g}" stroke="#d62728" stroke-width="1.5"/>'
    )
    parts.append(text(min(at + 4, x + width - 60), y + 16, f"cut {cut:.3g}", size=10))
    parts.append(text(x, y + height - 2, f"{edges[0]:.3g}", size=10))
    parts.append(text(x + width, y + height - 2, f"{edges[-1]:.3g}", "end", 10))
    parts.append(text(x + width / 2, y + height - 2, label, "middle", 10))
    return parts


def bars(
    labels: Sequence[str], counts: Sequence[int], *, x: float, y: float, width: float, title: str
) -> tuple[list[str], float]:
    """Horizontal bars; returns the parts and the height that they take."""
    step = 14.0
    parts = [text(x, y + 10, title)]
    biggest = max([*counts, 1])
    for i, (label, count) in enumerate(zip(labels, counts, strict=True)):
        at = y + 16 + i * step
        parts.append(text(x + 40, at + 10, label, "end", 10))
        parts.append(
            rectangle(x + 46, at + 2, (width - 90) * count / biggest, step - 4, "#3182bd", tip=f"{label}: {count}")
        )
        parts.append(text(x + 50 + (width - 90) * count / biggest, at + 10, str(count), size=10))
    return parts, 16 + len(counts) * step


def overlap_picture(shares: NDArray[np.int64], names: Sequence[str]) -> str:
    """The overlap matrix of sets, each cell with its count (paper A, Figure 2)."""
    cell = 46.0
    longest = 6.6 * max(len(n) for n in names)
    left = 24 + longest
    largest = float(shares.max()) or 1.0
    title = "Heads shared by each pair of sets"
    top = 40 + longest * math.sin(math.radians(35))
    parts = [text(12, 20, title, size=14)]
    for i, name in enumerate(names):
        y = top + i * cell
        parts.append(text(left - 8, y + cell / 2 + 4, name, "end"))
        at = left + i * cell + cell / 2
        parts.append(f'<g transform="rotate(-35 {at:g} {top - 8:g})">{text(at, top - 8, name)}</g>')
        for j, other in enumerate(names):
            share = float(shares[i, j]) / largest
            x = left + j * cell
            tip = f"{name} and {other} share {shares[i, j]}"
            parts.append(rectangle(x, y, cell, cell, colour(share), 'stroke="#fff"', tip))
            ink = "#fff" if share > 0.55 else "#222"
            parts.append(
                f'<text x="{x + cell / 2:g}" y="{y + cell / 2 + 4:g}" text-anchor="middle" font-size="12" fill="{ink}" '
                f'font-family="system-ui, sans-serif">{shares[i, j]}</text>'
            )
    # the last column's slanted name reaches beyond the matrix
    width = left + len(names) * cell + longest
    return svg(max(width, 280), top + len(names) * cell + 16, parts, title)
