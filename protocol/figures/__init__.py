"""Inline SVG figures of a report, one kind a module; each says in words what it shows."""

from harness_heads.protocol.figures.arms import arms_figure, rows_figure
from harness_heads.protocol.figures.dots import dots_figure
from harness_heads.protocol.figures.items import items_figure
from harness_heads.protocol.figures.maps import head_map, overlap_figure
from harness_heads.protocol.figures.sweeps import sweep_figure

__all__ = [
    "arms_figure",
    "dots_figure",
    "head_map",
    "items_figure",
    "overlap_figure",
    "rows_figure",
    "sweep_figure",
]
