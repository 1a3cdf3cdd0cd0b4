"""A small SVG canvas: shapes styled by class, so that one stylesheet serves light and dark."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise


@dataclass(frozen=True)
class Figure:
    """An inline figure.

    Attributes:
        id: anchor.  title: heading.  svg: markup.  alt: what a reader who does not see it needs to know.
        caption: how to read it.
    """

    id: str
    title: str
    svg: str
    alt: str
    caption: str = ""


def f(value: float) -> str:
    """Coordinates with two decimals at most: equal input, equal bytes."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


@dataclass
class Canvas:
    """Collects shapes; :meth:`svg` closes it. Units are CSS pixels of the view box."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(f'<line class="{kind}" x1="{f(x1)}" y1="{f(y1)}" x2="{f(x2)}" y2="{f(y2)}"/>')

    def rect(
        self, x: float, y: float, w: float, h: float, kind: str, title: str = "", opacity: float | None = None
    ) -> None:
        more = "" if opacity is None else f' fill-opacity="{f(opacity)}"'
        self._shape(
            f'<rect class="{kind}" x="{f(x)}" y="{f(y)}" width="{f(max(w, 0))}" height="{f(max(h, 0))}"{more}', title
        )

    def circle(self, x: float, y: float, r: float, kind: str, title: str = "") -> None:
        self._shape(f'<circle class="{kind}" cx="{f(x)}" cy="{f(y)}" r="{f(r)}"', title)

    def diamond(self, x: float, y: float, r: float, kind: str, title: str = "") -> None:
        points = " ".join(f"{f(a)},{f(b)}" for a, b in ((x, y - r), (x + r, y), (x, y + r), (x - r, y)))
        self._shape(f'<polygon class="{kind}" points="{points}"', title)

    def path(self, points: list[tuple[float, float]], kind: str, closed: bool = False) -> None:
        if points:
            text = "M" + "L".join(f"{f(x)} {f(y)}" for x, y in points) + ("Z" if closed else "")
            self.parts.append(f'<path class="{kind}" d="{text}"/>')

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        name = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{name} x="{f(x)}" y="{f(y)}" text-anchor="{anchor}">{escape(words)}</text>')

    def image(self, x: float, y: float, w: float, h: float, data_uri: str) -> None:
        self.parts.append(f'<image x="{f(x)}" y="{f(y)}" width="{f(w)}" height="{f(h)}" href="{escape(data_uri)}"/>')

    def svg(self, alt: str) -> str:
        """The markup, labelled by ``alt`` for readers who do not see it."""
        body = "".join(self.parts)
        size = f"{f(self.width)} {f(self.height)}"
        head = f'<svg viewBox="0 0 {size}" role="img" aria-label="{escape(alt)}"'
        return f'{head} style="max-width:{f(self.width * 1.45)}px">{body}</svg>'

    def _shape(self, start: str, title: str) -> None:
        self.parts.append(f"{start}><title>{escape(title)}</title>{_closing(start)}" if title else f"{start}/>")


def _closing(start: str) -> str:
    return f"</{start[1:].split(' ')[0]}>"


def shorten(text: str, characters: int) -> str:
    """Cut long labels; the full text stands in the table beside the figure."""
    flat = " ".join(text.split())
    return flat if len(flat) <= characters else flat[: characters - 1] + "…"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers inside [low, high]."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    step = 10 ** math.floor(math.log10(span / count))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= count:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_label(value: float, values: list[float]) -> str:
    """As many decimals as the tick distance needs."""
    step = min((b - a for a, b in pairwise(values)), default=abs(value) or 1.0)
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


@dataclass(frozen=True)
class Scale:
    """Linear map from data to pixels."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.stop - self.start)


def padded(values: list[float], include: float | None = 0.0) -> tuple[float, float]:
    """Range of finite values with 5 % room at both ends; ``include`` is always inside."""
    kept = [v for v in values if math.isfinite(v)] + ([] if include is None else [include])
    if not kept:
        return -1.0, 1.0
    low, high = min(kept), max(kept)
    room = (high - low or abs(high) or 1.0) * 0.05
    return low - room, high + room
