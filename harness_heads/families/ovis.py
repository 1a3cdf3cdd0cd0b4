"""Ovis 2: the whole image first, then tiles in reading order with column and row marks in between."""

import torch

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.grids import check_count, runs, size_of, square_side, token_positions
from harness_heads.layouts import ImageTokens, grid_cells, tile_cells

_START, _END, _GRID, _COLUMN, _ROW = range(5)  # order of config.visual_indicator_token_ids


def marked_tiles(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """Images begin at the start mark; the first run of each is the whole image, every further run one tile."""
    marks = list(prompt.config.visual_indicator_token_ids)
    ids = prompt.ids.tolist()
    grouped: list[list[torch.Tensor]] = []
    for run in runs(token_positions(prompt, int(prompt.config.image_token_id))):
        if not grouped or ids[int(run[0]) - 1] == marks[_START]:
            grouped.append([])
        grouped[-1].append(run)
    images = []
    for number, (whole, *tiles) in enumerate(grouped):
        side = square_side(len(whole))
        size = size_of(prompt, number)
        if not tiles:
            images.append(ImageTokens(whole, grid_cells(side, side), size))
            continue
        rows = 1 + sum(ids[int(tile[0]) - 1] == marks[_ROW] for tile in tiles)
        if len(tiles) % rows or any(len(tile) != len(whole) for tile in tiles):
            raise HarnessHeadsError(f"image layout of ovis2: {len(tiles)} tiles do not form {rows} rows")
        cells = torch.cat([grid_cells(side, side), tile_cells(rows, len(tiles) // rows, side, side)])
        positions = torch.cat([whole, *tiles])
        images.append(ImageTokens(positions, cells, size, (len(whole), len(tiles) * len(whole))))
    check_count(prompt, len(images))
    return tuple(images)


OVIS2 = Family(
    "ovis2",
    ("ovis2",),
    marked_tiles,
    note="the visual marks around and between tiles count as text",
)
