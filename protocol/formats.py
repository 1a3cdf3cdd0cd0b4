"""Numbers as text. Rounding happens here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NOT_ESTIMABLE = "not estimable"


@dataclass(frozen=True)
class Cell:
    """One table cell.

    Attributes:
        text: what is printed.
        values: the unrounded numbers behind it, first the one to sort by; empty for words.
        strong: printed bold (a result, a failure).
        link: anchor in the report that it points to.
    """

    text: str
    values: tuple[float, ...] = ()
    strong: bool = False
    link: str = ""


def number(value: float, digits: int = 3, reason: str = "") -> str:
    """``0.126``; ``not estimable (why)`` for NaN; never a bare 0.000 for what could not be computed."""
    if math.isnan(value):
        return f"{NOT_ESTIMABLE} ({reason})" if reason else NOT_ESTIMABLE
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def p_value(value: float, reason: str = "") -> str:
    """``0.048``; three digits, or scientific below 0.001."""
    if math.isnan(value):
        return number(value, reason=reason)
    return f"{value:.3f}" if value >= 0.0005 else f"{value:.1e}"


def interval(low: float, high: float, digits: int = 3, reason: str = "") -> str:
    """``[0.078, 0.155]``."""
    if math.isnan(low) or math.isnan(high):
        return f"[{NOT_ESTIMABLE}{f': {reason}' if reason else ''}]"
    return f"[{number(low, digits)}, {number(high, digits)}]"


def word(text: object) -> Cell:
    """A cell of words."""
    return Cell(str(text))


def value_cell(value: float, digits: int = 3, reason: str = "", strong: bool = False) -> Cell:
    """A cell of one number."""
    return Cell(number(value, digits, reason), (value,), strong)


def p_cell(value: float, reason: str = "", strong: bool = False) -> Cell:
    """A cell of one p."""
    return Cell(p_value(value, reason), (value,), strong)


def count_cell(value: int) -> Cell:
    """A cell of one whole number."""
    return Cell(str(value), (float(value),))


def interval_cell(
    mean: float, low: float, high: float, digits: int = 3, reason: str = "", strong: bool = False
) -> Cell:
    """``0.116 [0.078, 0.155]``."""
    text = f"{number(mean, digits, reason)} {interval(low, high, digits, reason if not math.isnan(mean) else '')}"
    return Cell(text if not math.isnan(mean) else number(mean, digits, reason), (mean, low, high), strong)


def spread_cell(mean: float, sd: float, digits: int = 3, reason: str = "") -> Cell:
    """``0.002 ± 0.007``: mean and SD of individual draws."""
    if math.isnan(mean):
        return Cell(number(mean, digits, reason), (mean, sd))
    if math.isnan(sd):
        return Cell(f"{number(mean, digits)} (one draw)", (mean, sd))
    return Cell(f"{number(mean, digits)} ± {number(sd, digits)}", (mean, sd))


def percent(value: float, digits: int = 1) -> str:
    """``8.7 %``."""
    return number(value, reason="") if math.isnan(value) else f"{100 * value:.{digits}f} %"


def counted(n: int, noun: str) -> str:
    """``1 layer``, ``3 layers``; the noun in the singular."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def joined(parts: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}" if parts else ""
