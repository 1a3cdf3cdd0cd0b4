"""Digits, their splits, and the pictures made of them: cells, grids and strips. NumPy and PIL only."""

from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SPLITS = ("train", "discover", "choose", "evaluate")
CELL = 64  # side of a digit's cell in pixels: 2 x 2 merged tokens of 32 pixels
GRID_SIDE = 2
PANELS = 6
BLANK_LEVEL = 127
_INK = 16  # the data's largest grey value
_GLYPH = 48  # side of the upscaled digit inside its cell
_JITTER = 4
_FRAME = 3  # width of the mark's frame in pixels

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@cache
def _archive() -> tuple[Images, Labels, Images]:
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as file:
        return file["images"], file["labels"].astype(np.int64), file["split"]


def indices(split: str) -> Labels:
    """Positions of a split's images in the data set.

    Args:
        split: One of ``SPLITS``.

    Returns:
        (n,) ascending indices into scikit-learn's order; no index is in two splits.

    Raises:
        ValueError: The split is unknown.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; the splits are {', '.join(SPLITS)}")
    return cast(Labels, np.flatnonzero(_archive()[2] == SPLITS.index(split)))


def digits(split: str) -> tuple[Images, Labels]:
    """Images and classes of a split.

    Args:
        split: One of ``SPLITS``.

    Returns:
        images (n, 8, 8) uint8 with grey values 0..16, labels (n,) with values 0..9.

    Raises:
        ValueError: The split is unknown.
    """
    images, labels, _ = _archive()
    where = indices(split)
    return images[where], labels[where]


def glyph(image: Images) -> Image.Image:
    """A digit enlarged to its size in a cell: 48 x 48 grey, light ink on black.

    Args:
        image: (8, 8) grey values 0..16.

    Raises:
        ValueError: The image has another shape.
    """
    if image.shape != (8, 8):
        raise ValueError(f"a digit is an array of shape (8, 8), not {image.shape}")
    grey = (image.astype(np.float64) * (255 / _INK)).round().astype(np.uint8)
    return Image.fromarray(grey, mode="L").resize((_GLYPH, _GLYPH), Image.Resampling.BICUBIC)


def render_cell(image: Images, rng: np.random.Generator) -> Image.Image:
    """A digit in its cell, placed with a small random shift.

    Args:
        image: (8, 8) grey values 0..16.
        rng: Draws the shift, at most 4 pixels each way.

    Returns:
        64 x 64 RGB picture.
    """
    dx, dy = rng.integers(-_JITTER, _JITTER + 1, size=2).tolist()
    margin = (CELL - _GLYPH) // 2
    canvas = Image.new("L", (CELL, CELL), 0)
    canvas.paste(glyph(image), (margin + dx, margin + dy))
    return canvas.convert("RGB")


def _tile(cells: list[Image.Image], columns: int, count: int) -> Image.Image:
    if len(cells) != count:
        raise ValueError(f"{count} cells are needed, {len(cells)} were given")
    if any(cell.size != (CELL, CELL) for cell in cells):
        raise ValueError(f"every cell must be {CELL} x {CELL} pixels")
    picture = Image.new("RGB", (columns * CELL, count // columns * CELL))
    for place, cell in enumerate(cells):
        picture.paste(cell, (place % columns * CELL, place // columns * CELL))
    return picture


def grid(cells: list[Image.Image]) -> Image.Image:
    """Four cells as a 128 x 128 grid, in the order top left, top right, bottom left, bottom right.

    Raises:
        ValueError: There are not four cells of 64 x 64 pixels.
    """
    return _tile(cells, GRID_SIDE, GRID_SIDE * GRID_SIDE)


def strip(cells: list[Image.Image]) -> Image.Image:
    """Six cells as a 384 x 64 strip, left to right.

    Raises:
        ValueError: There are not six cells of 64 x 64 pixels.
    """
    return _tile(cells, PANELS, PANELS)


def mark(picture: Image.Image, cell_index: int) -> Image.Image:
    """A copy of a grid with a white frame, 3 pixels wide, inside one cell's border.

    Args:
        picture: 128 x 128 grid.
        cell_index: 0..3 in the order of ``grid``.

    Raises:
        ValueError: The cell does not exist.
    """
    if not 0 <= cell_index < GRID_SIDE * GRID_SIDE:
        raise ValueError(f"a grid has cells 0 to {GRID_SIDE * GRID_SIDE - 1}, not {cell_index}")
    marked = picture.copy()
    left, top = cell_index % GRID_SIDE * CELL, cell_index // GRID_SIDE * CELL
    box = (left, top, left + CELL - 1, top + CELL - 1)
    ImageDraw.Draw(marked).rectangle(box, outline=(255, 255, 255), width=_FRAME)
    return marked


def blank(size: tuple[int, int], level: int = BLANK_LEVEL) -> Image.Image:
    """A uniform grey picture.

    Args:
        size: Width and height in pixels.
        level: Grey value 0..255.
    """
    return Image.new("RGB", size, (level, level, level))
