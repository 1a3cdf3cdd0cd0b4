"""Table: the one shape that HTML, Markdown, terminal and JSON print."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from harness_heads.protocol.formats import Cell


@dataclass(frozen=True)
class Table:
    """A titled table.

    Attributes:
        id: anchor and JSON key.
        title: what it shows.
        columns: headings.
        rows: cells, one per column.
        note: how to read it.
        paper: table of a paper that has the same shape.
    """

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    paper: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"table {self.id}: {len(row)} cells for {len(self.columns)} columns"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value; numbers unrounded, NaN as null."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[{"text": c.text, "values": [plain(v) for v in c.values]} for c in row] for row in self.rows],
            "note": self.note,
            "paper": self.paper,
        }

    def text(self, style: str = "simple") -> str:
        """The table by tabulate: ``github`` for Markdown, ``simple`` for a terminal."""
        clean = markdown_text if style == "github" else one_line
        rows = [[clean(c.text) for c in row] for row in self.rows]
        return tabulate(rows, [clean(c) for c in self.columns], tablefmt=style, disable_numparse=True)


def plain(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None


def one_line(text: str) -> str:
    """Whitespace of any kind as single blanks."""
    return " ".join(text.split())


def markdown_text(text: str) -> str:
    """Text that Markdown prints as it is: class names may hold pipes, newlines and tags."""
    out = one_line(text)
    for character in "\\`*_{}[]<>#|~":
        # brackets of intervals are harmless and frequent; only what starts markup is escaped
        if character not in "[]{}#_":
            out = out.replace(character, "\\" + character)
    return out.replace("\\<", "&lt;").replace("\\>", "&gt;")
