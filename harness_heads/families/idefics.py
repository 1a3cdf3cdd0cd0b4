"""Idefics 3 and SmolVLM: tiles in reading order, each after its own text tag, then the whole image."""

import re

import torch
from torch import Tensor

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.grids import check_count, runs, size_of, square_side, token_positions
from harness_heads.layouts import ImageTokens, grid_cells, tile_cells

_TILE = re.compile(r"<row_(\d+)_col_(\d+)>$")
_TAG_TOKENS = 12  # a tag is at most so many tokens where it is not a token of its own


def tagged_tiles(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """The tag before a run of image tokens says which tile it is; the run without a tile tag is the whole image."""
    found = runs(token_positions(prompt, int(prompt.config.image_token_id)))
    images: list[ImageTokens] = []
    tiles: list[tuple[tuple[int, int], Tensor]] = []
    for run in found:
        tile = _tile_of(prompt, run)
        if tile is not None:
            tiles.append((tile, run))
            continue
        images.append(_image(tiles, run, size_of(prompt, len(images))))
        tiles = []
    if tiles:
        raise HarnessHeadsError("image layout of idefics3: the last tiles are not followed by the whole image")
    check_count(prompt, len(images))
    return tuple(images)


def _tile_of(prompt: PromptInputs, run: Tensor) -> tuple[int, int] | None:
    tokenizer = getattr(prompt.processor, "tokenizer", prompt.processor)
    if tokenizer is None or not hasattr(tokenizer, "decode"):
        return None
    start = int(run[0])
    before = tokenizer.decode(prompt.ids[max(0, start - _TAG_TOKENS) : start].tolist())
    match = _TILE.search(before)
    return (int(match[1]), int(match[2])) if match else None


def _image(tiles: list[tuple[tuple[int, int], Tensor]], whole: Tensor, size: tuple[int, int] | None) -> ImageTokens:
    side = square_side(len(whole))
    if not tiles:
        return ImageTokens(whole, grid_cells(side, side), size)
    rows, columns = tiles[-1][0]
    if len(tiles) != rows * columns or any(len(run) != len(whole) for _, run in tiles):
        raise HarnessHeadsError(f"image layout of idefics3: {len(tiles)} tiles do not form {rows} x {columns}")
    positions = torch.cat([*(run for _, run in tiles), whole])
    cells = torch.cat([tile_cells(rows, columns, side, side), grid_cells(side, side)])
    return ImageTokens(positions, cells, size, (len(tiles) * len(whole), len(whole)))


IDEFICS3 = Family(
    "idefics3",
    ("idefics3", "smolvlm"),
    tagged_tiles,
    turn_start=("<|im_start|>User:", "<|im_start|>user", "User:"),
    turn_end=("<end_of_utterance>",),
    note="the image group reaches from the first to the last image token, tags between tiles included",
)
