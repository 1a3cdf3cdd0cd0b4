"""Layout rules that several families share."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import PromptInputs
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


def size_of(prompt: PromptInputs, image: int) -> tuple[int, int] | None:
    """Width and height of image ``image`` as shown; ``None`` where sizes were not given."""
    return prompt.sizes[image] if image < len(prompt.sizes) else None


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
    """One square row-major grid over the whole image per image (Gemma 3, PaliGemma)."""
    images = []
    for number, positions in enumerate(per_image(prompt)):
        side = square_side(len(positions))
        images.append(ImageTokens(positions, grid_cells(side, side), size_of(prompt, number)))
    return tuple(images)


def square_side(count: int) -> int:
    """Side of a square grid of ``count`` tokens."""
    side = math.isqrt(count)
    if side * side != count:
        raise HarnessHeadsError(
            f"image layout: {count} image tokens are no square grid; check the processor's settings"
        )
    return side


def per_image(prompt: PromptInputs) -> tuple[Tensor, ...]:
    """Image tokens of each image: separate runs, or images of equal length that follow each other in one run."""
    positions = token_positions(prompt, int(prompt.config.image_token_id))
    found, images = runs(positions), len(prompt.sizes)
    if images > len(found) and len(found) and len(positions) % images == 0:
        return tuple(positions.chunk(images))
    check_count(prompt, len(found))
    return found


def need_sizes(prompt: PromptInputs, family: str) -> None:
    """Raise unless sizes of the images as shown were given."""
    if not prompt.sizes:
        raise HarnessHeadsError(f"image layout of {family}: tiles depend on the images' sizes; pass image_sizes")


def image_processor_of(prompt: PromptInputs) -> Any:
    """The processor's image part, ``None`` where there is none."""
    return getattr(prompt.processor, "image_processor", None)
