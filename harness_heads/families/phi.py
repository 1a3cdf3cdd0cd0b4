"""Phi-4-multimodal: tiles as one grid with newlines, a separator, then the whole image with newlines."""

import torch

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.grids import token_positions
from harness_heads.layouts import ImageTokens, newline_cells, no_cells


def tiles_then_whole(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """The image lies at the top left of a canvas of tiles, white beyond it; rows and columns of padding are cut."""
    vision = prompt.config.vision_config
    positions = token_positions(prompt, int(vision.image_token_id))
    canvases, masks = prompt.inputs.get("image_sizes"), prompt.inputs.get("image_attention_mask")
    if not len(positions):
        return ()
    if canvases is None or masks is None or not prompt.sizes:
        raise HarnessHeadsError("image layout of phi4_multimodal: image_sizes and image_attention_mask are needed")
    tile = int(vision.crop_size)
    patches = int(vision.image_size) // int(vision.patch_size)
    side = (patches + patches % 2) // 2
    images, start = [], 0
    for number, size in enumerate(prompt.sizes):
        height, width = (int(v) for v in canvases.reshape(-1, 2)[number])
        tile_rows, tile_columns = height // tile, width // tile
        useful = masks[number, 1 : tile_rows * tile_columns + 1, 0::2, 0::2]
        useful = useful.reshape(tile_rows, tile_columns, side, side).transpose(1, 2)
        useful = useful.reshape(tile_rows * side, tile_columns * side)
        rows, columns = int(useful[:, 0].sum()), int(useful[0].sum())
        scale = min(width / size[0], height / size[1])
        shown_width, shown_height = int(size[0] * scale), int(size[1] * scale)
        tiles = newline_cells(
            rows, columns, (0.0, 0.0, columns * tile / side / shown_width, rows * tile / side / shown_height)
        )
        whole = newline_cells(side, side, (0.0, 0.0, width / shown_width, height / shown_height))
        cells = torch.cat([tiles, no_cells(1), whole])
        views = (len(tiles) + 1, len(whole))
        images.append(ImageTokens(positions[start : start + len(cells)], cells, size, views))
        start += len(cells)
    if start != len(positions):
        raise HarnessHeadsError(
            f"image layout of phi4_multimodal: {start} image tokens expected, the prompt holds {len(positions)}"
        )
    return tuple(images)


PHI4 = Family(
    "phi4_multimodal",
    ("phi4_multimodal",),
    tiles_then_whole,
    image_token=lambda config: int(config.vision_config.image_token_id),
    turn_start=("<|user|>",),
    turn_end=("<|end|>",),
    note="the decoder embeds images itself",
)
