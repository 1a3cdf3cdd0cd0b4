"""From pixels to token positions: how the image tokens of a prompt lie on its images.

Every layout kind (one grid, tiles with a thumbnail, rows with newlines) is brought to one form: the tokens of an image
in order, and for each the box it covers as a fraction of the image as shown; newline and separator tokens cover
nothing. All rules about regions are then written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from harness_heads.conditions import ROW_GROUPS
from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.regions import Region

RegionRule = Literal["centre", "overlap"]
FULL_VIEW = (0.0, 0.0, 1.0, 1.0)
MIN_SHARE = 0.1  # rule ``overlap``: a cell counts when more than this share of it lies in the box


def grid_cells(rows: int, columns: int, view: Sequence[float] = FULL_VIEW) -> Tensor:
    """Cells of a row-major grid over ``view`` (x0, y0, x1, y1 as fractions of the image); float64 (rows*columns, 4)."""
    x0, y0, x1, y1 = view
    xs = x0 + (x1 - x0) * torch.arange(columns + 1, dtype=torch.float64) / columns
    ys = y0 + (y1 - y0) * torch.arange(rows + 1, dtype=torch.float64) / rows
    left, top = xs[:-1].repeat(rows), ys[:-1].repeat_interleave(columns)
    right, bottom = xs[1:].repeat(rows), ys[1:].repeat_interleave(columns)
    return torch.stack([left, top, right, bottom], dim=1)


def tile_cells(tile_rows: int, tile_columns: int, rows: int, columns: int) -> Tensor:
    """Cells of an image that is stretched over tiles: tile by tile in reading order, each a row-major grid."""
    cells = []
    for r in range(tile_rows):
        for c in range(tile_columns):
            view = (c / tile_columns, r / tile_rows, (c + 1) / tile_columns, (r + 1) / tile_rows)
            cells.append(grid_cells(rows, columns, view))
    return torch.cat(cells)


def newline_cells(rows: int, columns: int, view: Sequence[float] = FULL_VIEW) -> Tensor:
    """Cells of a grid whose every row is followed by one newline token (which covers nothing: NaN)."""
    cells = grid_cells(rows, columns, view).reshape(rows, columns, 4)
    return torch.cat([cells, cells.new_full((rows, 1, 4), torch.nan)], dim=1).reshape(-1, 4)


def no_cells(count: int) -> Tensor:
    """``count`` tokens that cover no part of the image."""
    return torch.full((count, 4), torch.nan, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class ImageTokens:
    """The tokens of one image.

    Attributes:
        positions: sequence positions, ascending; long (n,).
        cells: the box each token covers, as fractions x0, y0, x1, y1 of the image as shown; float64 (n, 4), NaN where
            a token covers nothing.
        size: width and height of the image as shown, in pixels; ``None`` where unknown (regions cannot be looked up).
        views: how many tokens each view of the image has, in order (tiles together are one view, a thumbnail is
            another); empty for a single view. Regions are looked up in each view on its own.
    """

    positions: Tensor
    cells: Tensor
    size: tuple[int, int] | None
    views: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.views and sum(self.views) != len(self.positions):
            raise HarnessHeadsError(f"image layout: views {self.views} do not sum to {len(self.positions)} tokens")
        if self.cells.shape != (len(self.positions), 4):
            raise HarnessHeadsError(
                f"image layout: {len(self.positions)} image tokens but {self.cells.shape[0]} cells; the processor's "
                "settings differ from the layout rule of this model family"
            )

    @property
    def shown(self) -> tuple[int, int]:
        """Width and height of the image as shown; an error where they are unknown."""
        if self.size is None:
            raise HarnessHeadsError("a region is named, but the image's size is not known; pass image_sizes")
        return self.size

    def inside(self, region: Region, rule: RegionRule = "centre") -> Tensor:
        """Which tokens belong to ``region``; bool (n,).

        ``centre``: the cell's centre lies in a box (left and top edges included). A box that is smaller than a cell
        may hold no centre: then the cells that overlap it most are taken. ``overlap``: more than a tenth of the cell,
        or of the box where that is smaller, lies in the box.
        """
        width, height = self.shown
        pick = _by_centre if rule == "centre" else _by_overlap
        parts = []
        for cells in torch.split(self.cells, list(self.views) or [len(self.positions)]):
            chosen = torch.zeros(len(cells), dtype=torch.bool)
            for x0, y0, x1, y1 in region.boxes:
                chosen |= pick(cells, (x0 / width, y0 / height, x1 / width, y1 / height))
            parts.append(chosen)
        return torch.cat(parts)


def _by_centre(cells: Tensor, box: Sequence[float]) -> Tensor:
    x, y = (cells[:, 0] + cells[:, 2]) / 2, (cells[:, 1] + cells[:, 3]) / 2
    inside = (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])
    if bool(inside.any()) or not len(cells):
        return inside
    overlap = _overlap(cells, box)
    # cells on either side of a border share the box evenly up to rounding
    return (overlap > 0) & (overlap >= overlap.max() * (1 - 1e-9))


def _by_overlap(cells: Tensor, box: Sequence[float]) -> Tensor:
    area = (cells[:, 2] - cells[:, 0]) * (cells[:, 3] - cells[:, 1])
    smaller = area.nan_to_num(torch.inf).clamp(max=(box[2] - box[0]) * (box[3] - box[1]))
    return _overlap(cells, box) > MIN_SHARE * smaller


def _overlap(cells: Tensor, box: Sequence[float]) -> Tensor:
    """Area that each cell shares with the box; 0 for tokens that cover nothing."""
    w = (cells[:, 2].clamp(max=box[2]) - cells[:, 0].clamp(min=box[0])).clamp(min=0)
    h = (cells[:, 3].clamp(max=box[3]) - cells[:, 1].clamp(min=box[1])).clamp(min=0)
    return (w * h).nan_to_num(0.0)


@dataclass(frozen=True, eq=False)
class PromptLayout:
    """One prompt in token positions, without padding.

    Attributes:
        length: tokens of the prompt, T.
        images: the tokens of each image, in order of the images.
        turn: first position of the user turn and the position after its last (question and options included).
        may_look_ahead: whether some rows may see later keys (bidirectional image blocks, prefix attention).
    """

    length: int
    images: tuple[ImageTokens, ...]
    turn: tuple[int, int]
    may_look_ahead: bool = False

    @cached_property
    def image_positions(self) -> Tensor:
        """Every image token, ascending; long (n,)."""
        if not self.images:
            return torch.zeros(0, dtype=torch.long)
        return torch.cat([image.positions for image in self.images]).sort().values

    @cached_property
    def text_positions(self) -> Tensor:
        """Every other token of the user turn, ascending; long (n,)."""
        start, stop = self.turn
        text = torch.zeros(self.length, dtype=torch.bool)
        text[start:stop] = True
        text[self.image_positions] = False
        return text.nonzero()[:, 0]

    @cached_property
    def groups(self) -> Mapping[str, Tensor]:
        """Row groups by name (see :data:`harness_heads.conditions.ROW_GROUPS`); long positions, ascending.

        A prompt without images has empty ``prefix`` and ``image`` groups; its question begins with the user turn.
        """
        positions = torch.arange(self.length)
        if len(self.image_positions):
            first, after = int(self.image_positions[0]), int(self.image_positions[-1]) + 1
        else:
            first, after = 0, self.turn[0]
        stop = min(max(self.turn[1], after), self.length - 1)  # the final row always belongs to the tail
        return {
            "prefix": positions[:first],
            "image": positions[first:after] if len(self.image_positions) else positions[:0],
            "question": positions[after:stop],
            "tail": positions[stop:],
            "last": positions[-1:],
        }

    def rows(self, *names: str | Sequence[str]) -> Tensor:
        """Union of row groups, or every row for ``all``; long positions, ascending.

        Names come as words or as one sequence of words: ``rows("question")``, ``rows(("question", "last"))``.
        """
        words = [w for name in names for w in ((name,) if isinstance(name, str) else name)]
        chosen = torch.zeros(self.length, dtype=torch.bool)
        for word in words:
            if word == "all":
                chosen[:] = True
            elif word in self.groups:
                chosen[self.groups[word]] = True
            else:
                known = ("all", *ROW_GROUPS)
                raise HarnessHeadsError(
                    f"row group {word!r} is unknown{did_you_mean(word, known)} (known: {', '.join(known)})"
                )
        return chosen.nonzero()[:, 0]

    def region_tokens(self, region: Region, rule: RegionRule = "centre", name: str = "") -> Tensor:
        """Positions of the image tokens in ``region``; long (n,), ascending.

        Raises:
            HarnessHeadsError: naming the region, if its image is not in the prompt or no token lies in it.
        """
        what = f"region {name!r}" if name else f"region {region.boxes}"
        if not 0 <= region.image < len(self.images):
            raise HarnessHeadsError(f"{what}: image {region.image} is not in the prompt ({len(self.images)} images)")
        image = self.images[region.image]
        inside = region.inside(*image.shown, what)
        positions = image.positions[image.inside(inside, rule)]
        if not len(positions):
            raise HarnessHeadsError(f"{what}: no image token lies in it; enlarge the box or use rule 'overlap'")
        return positions
