"""Layout rules that several families share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import LayoutRule, PromptInputs
from harness_heads.layouts import ImageTokens, grid_cells


def token_positions(prompt: PromptInputs, token: int) -> Tensor:
    """Positions of ``token``; long (n,)."""
    return (prompt.ids == token).nonzero()[:, 0]


def runs(positions: Tensor) -> tuple[Tensor, ...]:
    """Ascending positions cut where they are not neighbours."""
    if not len(positions):
        return ()
    breaks = ((positions[1:] - positions[:-1]) != 1).nonzero()[:, 0] + 1
    return tuple(positions.tensor_split(breaks.tolist()))


def size_of(prompt: PromptInputs, image: int) -> tuple[int, int]:
    """Width and height of image ``image`` as shown; the unit square where sizes were not given."""
    return prompt.sizes[image] if image < len(prompt.sizes) else (1, 1)


def check_count(prompt: PromptInputs, found: int) -> None:
    """Raise unless the prompt holds as many images as sizes were given for."""
    if prompt.sizes and found != len(prompt.sizes):
        raise HarnessHeadsError(
            f"image layout: the prompt holds {found} images but {len(prompt.sizes)} sizes were given"
        )


def merged_grid(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """Qwen-VL and GLM-V: one row-major grid per image, ``image_grid_thw`` patches merged in squares."""
    positions = token_positions(prompt, int(prompt.config.image_token_id))
    grids = prompt.inputs.get("image_grid_thw")
    if not len(positions):
        return ()
    if grids is None:
        raise HarnessHeadsError(
            "image layout: inputs have image tokens but no image_grid_thw; keep what the processor made"
        )
    if prompt.sizes:  # a batch that repeats one prompt repeats its grids
        grids = grids[: len(prompt.sizes)]
    merge = int(prompt.config.vision_config.spatial_merge_size)
    images, start = [], 0
    for number, (t, h, w) in enumerate(grids.tolist()):
        rows, columns = h // merge, w // merge
        count = t * rows * columns
        cells = grid_cells(rows, columns).repeat(t, 1)
        images.append(ImageTokens(positions[start : start + count], cells, size_of(prompt, number)))
        start += count
    if start != len(positions):
        raise HarnessHeadsError(
            f"image layout: image_grid_thw asks for {start} tokens, the prompt holds {len(positions)}; pass one prompt"
        )
    check_count(prompt, len(images))
    return tuple(images)


def square_runs(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """One square row-major grid over the whole image per run of image tokens (Gemma, PaliGemma, DeepSeek-VL)."""
    found = runs(token_positions(prompt, int(prompt.config.image_token_id)))
    images = []
    for number, positions in enumerate(found):
        side = math.isqrt(len(positions))
        if side * side != len(positions):
            raise HarnessHeadsError(f"image layout: a run of {len(positions)} image tokens is no square grid")
        images.append(ImageTokens(positions, grid_cells(side, side), size_of(prompt, number)))
    check_count(prompt, len(images))
    return tuple(images)


def equal_squares(prompt: PromptInputs, images: int) -> tuple[Tensor, ...]:
    """Image-token positions split evenly over ``images`` (images that follow each other without a separator)."""
    positions = token_positions(prompt, int(prompt.config.image_token_id))
    if images and len(positions) % images:
        raise HarnessHeadsError(f"image layout: {len(positions)} image tokens do not divide over {images} images")
    return positions.chunk(images) if images else ()


def by_image_token(rule: LayoutRule) -> LayoutRule:
    """The rule, or no image at all where the prompt has no image token."""

    def checked(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
        if not bool((prompt.ids == int(prompt.config.image_token_id)).any()):
            return ()
        return rule(prompt)

    return checked


def concatenated(parts: list[Tensor]) -> Tensor:
    """Cells of several views, one after the other; float64 (n, 4)."""
    return torch.cat(parts)
