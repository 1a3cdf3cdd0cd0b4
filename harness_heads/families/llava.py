"""LLaVA 1.5 (one square grid), LLaVA-NeXT and OneVision (base view, then the unpadded tiles with newlines)."""

import math

import torch
from torch import Tensor
from transformers.image_processing_utils import select_best_resolution

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.grids import (
    image_processor_of,
    per_image,
    size_of,
    square_side,
    token_positions,
)
from harness_heads.layouts import FULL_VIEW, ImageTokens, grid_cells, newline_cells, no_cells

_TURN = ("USER:", "[INST]", "<|im_start|>user", "<|start_header_id|>user")
_TURN_END = ("ASSISTANT:", "[/INST]", "<|im_end|>", "<|eot_id|>")
_LOCATE = "Please provide the bounding box coordinate of the region this sentence describes: {expression}"


def cropped_square(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """LLaVA 1.5: one square grid over what the image processor leaves of the image."""
    images = []
    for number, positions in enumerate(per_image(prompt)):
        side, size = square_side(len(positions)), size_of(prompt, number)
        view = _crop_view(image_processor_of(prompt), size)
        images.append(ImageTokens(positions, grid_cells(side, side, view), size))
    return tuple(images)


def _crop_view(processor: object, size: tuple[int, int] | None) -> tuple[float, float, float, float]:
    """The part of the image that a CLIP processor keeps: it scales the shorter side and crops the centre."""
    crop, scale_to = getattr(processor, "crop_size", None), getattr(processor, "size", None)
    if size is None or not getattr(processor, "do_center_crop", False) or crop is None or scale_to is None:
        return FULL_VIEW
    shortest = scale_to.get("shortest_edge") if hasattr(scale_to, "get") else getattr(scale_to, "shortest_edge", None)
    if shortest is None:
        return FULL_VIEW
    scale = shortest / min(size)
    width, height = size[0] * scale, size[1] * scale
    crop_width, crop_height = int(crop["width"]), int(crop["height"])
    x, y = (width - crop_width) / 2 / width, (height - crop_height) / 2 / height
    return (x, y, 1 - x, 1 - y)


def anyres(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """Base view over the whole image, then the tiles as one grid without its padding, a newline after every row."""
    positions = token_positions(prompt, int(prompt.config.image_token_id))
    if not len(positions):
        return ()
    if not prompt.sizes:
        raise HarnessHeadsError("image layout of llava: rows depend on the images' sizes; pass image_sizes")
    vision = prompt.config.vision_config
    side = int(vision.image_size) // int(vision.patch_size)
    base, start, images = side * side, 0, []
    # several images are each shown in their base view alone by OneVision: the counts tell which case it is
    single = len(positions) == len(prompt.sizes) * (base + 1)
    for size in prompt.sizes:
        if single:
            cells = torch.cat([grid_cells(side, side), no_cells(1)])
            views: tuple[int, ...] = ()
        else:
            high = _unpadded(prompt, size, side)
            cells, views = torch.cat([grid_cells(side, side), high]), (base, len(high))
        images.append(ImageTokens(positions[start : start + len(cells)], cells, size, views))
        start += len(cells)
    if start != len(positions):
        raise HarnessHeadsError(
            f"image layout of llava: images of {prompt.sizes} should have {start} tokens, the prompt holds "
            f"{len(positions)}"
        )
    return tuple(images)


def _unpadded(prompt: PromptInputs, size: tuple[int, int], side: int) -> Tensor:
    """Cells of the tiles' grid; the image lies centred in the best resolution, its padding rows or columns are cut."""
    width, height = size
    tile = int(prompt.config.vision_config.image_size)
    best_height, best_width = select_best_resolution([height, width], prompt.config.image_grid_pinpoints)
    rows, columns = best_height // tile * side, best_width // tile * side
    scale = min(best_width / width, best_height / height)
    shown_width, shown_height = min(math.ceil(width * scale), best_width), min(math.ceil(height * scale), best_height)
    left, top = (best_width - shown_width) // 2, (best_height - shown_height) // 2
    cut_rows = cut_columns = 0
    if width / height > columns / rows:
        cut_rows = (rows - int(round(height * (columns / width), 7))) // 2
    else:
        cut_columns = (columns - int(round(width * (rows / height), 7))) // 2
    cell_height, cell_width = best_height / rows, best_width / columns
    view = (
        (cut_columns * cell_width - left) / shown_width,
        (cut_rows * cell_height - top) / shown_height,
        ((columns - cut_columns) * cell_width - left) / shown_width,
        ((rows - cut_rows) * cell_height - top) / shown_height,
    )
    rows, columns = rows - 2 * cut_rows, columns - 2 * cut_columns
    limit = str(getattr(prompt.config, "vision_aspect_ratio", ""))
    if limit.startswith("anyres_max_"):  # OneVision shrinks grids of more than so many tiles
        ratio = math.sqrt(rows * columns / (int(limit.removeprefix("anyres_max_")) * side**2))
        if ratio > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
    return newline_cells(rows, columns, view)


LLAVA = Family(
    "llava",
    ("llava",),
    cropped_square,
    box_format="llava_square",
    grounding_prompt=_LOCATE,
    turn_start=_TURN,
    turn_end=_TURN_END,
)
LLAVA_NEXT = Family(
    "llava_next",
    ("llava_next",),
    anyres,
    box_format="llava",
    grounding_prompt=_LOCATE,
    turn_start=_TURN,
    turn_end=_TURN_END,
    note="newline tokens belong to the image but to no region",
)
LLAVA_ONEVISION = Family(
    "llava_onevision",
    ("llava_onevision",),
    anyres,
    box_format="llava",
    grounding_prompt=_LOCATE,
    turn_start=_TURN,
    turn_end=_TURN_END,
    note="newline tokens belong to the image but to no region",
)
