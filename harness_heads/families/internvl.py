"""InternVL (HF port): tiles in reading order, then a thumbnail; 16 x 16 tokens each; no separators in between."""

import torch
from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.grids import image_processor_of, per_image, size_of, square_side
from harness_heads.layouts import ImageTokens, grid_cells, tile_cells


def tiles_and_thumbnail(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """The image is stretched over tiles; more than one tile are followed by the whole image as a thumbnail."""
    length = int(prompt.config.image_seq_length)
    side = square_side(length)
    images = []
    for number, positions in enumerate(per_image(prompt)):
        tiles, rest = divmod(len(positions), length)
        if rest:
            raise HarnessHeadsError(
                f"image layout of internvl: {len(positions)} image tokens are no multiple of {length}"
            )
        size = size_of(prompt, number)
        if tiles == 1:
            images.append(ImageTokens(positions, grid_cells(side, side), size))
            continue
        columns, rows = _canvas(prompt, number, tiles - 1)
        cells = torch.cat([tile_cells(rows, columns, side, side), grid_cells(side, side)])
        images.append(ImageTokens(positions, cells, size, ((tiles - 1) * length, length)))
    return tuple(images)


def _canvas(prompt: PromptInputs, number: int, tiles: int) -> tuple[int, int]:
    """Columns and rows of tiles, by the processor's own rule."""
    if number >= len(prompt.sizes):
        raise HarnessHeadsError("image layout of internvl: tiles depend on the image's size; pass image_sizes")
    width, height = prompt.sizes[number]
    processor = image_processor_of(prompt)
    size = prompt.config.vision_config.image_size
    tile = (int(size[0]), int(size[1])) if isinstance(size, list | tuple) else (int(size), int(size))
    least, most = int(getattr(processor, "min_patches", 1)), int(getattr(processor, "max_patches", 12))
    columns, rows = get_optimal_tiled_canvas((height, width), tile, least, most)
    if columns * rows != tiles:
        raise HarnessHeadsError(
            f"image layout of internvl: an image of {width}x{height} should have {columns * rows} tiles, the prompt "
            f"has {tiles}; pass the processor whose settings made it"
        )
    return int(columns), int(rows)


INTERNVL = Family(
    "internvl",
    ("internvl",),
    tiles_and_thumbnail,
    box_format="internvl",
    grounding_prompt=(
        "Please provide the bounding box coordinate of the region this sentence describes: <ref>{expression}</ref>"
    ),
    note="HF port (InternVL 2.5, 3, 3.5); a region covers its tokens in the tiles and in the thumbnail",
)
