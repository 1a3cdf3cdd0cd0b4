"""Training pictures: augmented cells as arrays of grey patches, composed without redrawing."""

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from . import data

# a cell's patches: merged token row, merged token column, patch within the token, pixel
CELL_SHAPE = (2, 2, 4, 256)
Cells = NDArray[np.uint8]


def cell_patches(pictures: NDArray[np.uint8]) -> Cells:
    """Grey cells (n, 64, 64) as patches (n, 2, 2, 4, 256), in the processor's order."""
    n = len(pictures)
    blocks = pictures.reshape(n, 2, 2, 16, 2, 2, 16).transpose(0, 1, 4, 2, 5, 3, 6)
    return np.ascontiguousarray(blocks).reshape(n, *CELL_SHAPE)


def augmented_cell(image: data.Images, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A digit scaled, turned, sheared, shifted and dimmed at random: (64, 64) grey values."""
    if rng.random() < 0.3:
        return np.asarray(data.render_cell(image, rng).convert("L"))
    angle, shear = np.deg2rad(rng.uniform(-12, 12)), rng.uniform(-0.15, 0.15)
    scale = 1 / rng.uniform(0.85, 1.15, size=2)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    matrix = turn @ np.array([[1, shear], [0, 1]]) @ np.diag(scale)
    target = 32 + rng.uniform(-4.5, 4.5, size=2)
    offset = np.array([24.0, 24.0]) - matrix @ target
    coefficients = (matrix[0, 0], matrix[0, 1], offset[0], matrix[1, 0], matrix[1, 1], offset[1])
    turned = data.glyph(image).transform(
        (data.CELL, data.CELL), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
    )
    return (np.asarray(turned) * rng.uniform(0.7, 1.0)).astype(np.uint8)


def _frame() -> NDArray[np.bool_]:
    picture = data.mark(data.grid([data.blank((data.CELL, data.CELL), 0)] * 4), 0)
    corner = np.asarray(picture.convert("L"))[: data.CELL, : data.CELL]
    return cast(NDArray[np.bool_], cell_patches(corner[None])[0] > 0)


@dataclass(frozen=True)
class Bank:
    """Cells of one split, several renders a digit.

    cells: (n, 2, 2, 4, 256) patches.
    by_class: For each digit the positions in ``cells``.
    frame: (2, 2, 4, 256) pixels of the mark's frame.
    """

    cells: Cells
    by_class: tuple[NDArray[np.int64], ...]
    frame: NDArray[np.bool_]

    def draw(self, labels: NDArray[np.int64], rng: np.random.Generator) -> Cells:
        """One cell for each label: labels (...,) -> (..., 2, 2, 4, 256)."""
        picks = [self.by_class[label][rng.integers(len(self.by_class[label]))] for label in labels.ravel()]
        return self.cells[picks].reshape(*labels.shape, *CELL_SHAPE)


def build_bank(split: str, renders: int, augment: bool, rng: np.random.Generator) -> Bank:
    """Renders of all digits of a split.

    Args:
        split: Split of the data.
        renders: Renders of each digit.
        augment: With training's augmentation, or as at test time.
        rng: Draws the renders.
    """
    images, labels = data.digits(split)
    pictures = [
        augmented_cell(image, rng) if augment else np.asarray(data.render_cell(image, rng).convert("L"))
        for image in images
        for _ in range(renders)
    ]
    repeated = np.repeat(labels, renders)
    by_class = tuple(np.flatnonzero(repeated == digit) for digit in range(10))
    return Bank(cell_patches(np.stack(pictures)), by_class, _frame())


def single_patches(cells: Cells) -> Cells:
    """Cells (n, 2, 2, 4, 256) as pictures (n, 16, 256)."""
    return cells.reshape(len(cells), 16, 256)


def grid_patches(cells: Cells) -> Cells:
    """Cells (n, 4, 2, 2, 4, 256) as grids (n, 64, 256)."""
    n = len(cells)
    return cells.reshape(n, 2, 2, 2, 2, 4, 256).transpose(0, 1, 3, 2, 4, 5, 6).reshape(n, 64, 256)


def strip_patches(cells: Cells) -> Cells:
    """Cells (n, 6, 2, 2, 4, 256) as strips (n, 96, 256)."""
    n = len(cells)
    return cells.transpose(0, 2, 1, 3, 4, 5).reshape(n, 96, 256)


def flat_cells(count: int, rng: np.random.Generator) -> Cells:
    """Uniform cells of random grey: (count, 2, 2, 4, 256)."""
    levels = rng.integers(0, 256, size=(count, 1, 1, 1, 1), dtype=np.uint8)
    levels[rng.random(count) < 0.3] = data.BLANK_LEVEL
    return np.broadcast_to(levels, (count, *CELL_SHAPE)).copy()


def noise_cells(count: int, rng: np.random.Generator) -> Cells:
    """Random cells, coarse (8 x 8 random greys enlarged) or fine (every pixel): (count, 2, 2, 4, 256)."""
    pictures = []
    for _ in range(count):
        side = int(rng.choice([8, 64]))
        raw = Image.fromarray(rng.integers(0, 256, size=(side, side), dtype=np.uint8), mode="L")
        pictures.append(np.asarray(raw.resize((data.CELL, data.CELL), Image.Resampling.BICUBIC)))
    return cell_patches(np.stack(pictures)) if pictures else np.zeros((0, *CELL_SHAPE), np.uint8)
