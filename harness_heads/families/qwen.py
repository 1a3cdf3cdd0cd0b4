"""Qwen-VL: one merged grid per image; boxes as JSON in thousandths (2.5: in pixels of the resized image)."""

from harness_heads.families.base import Family
from harness_heads.families.grids import merged_grid

LOCATE = "Locate {expression} in this image and output the bbox coordinates in JSON format."

QWEN2_VL = Family(
    "qwen2_vl",
    ("qwen2_vl",),
    merged_grid,
    box_format="qwen2_vl",
    grounding_prompt="Please provide the bounding box coordinate of the region this sentence describes: {expression}",
)
QWEN2_5_VL = Family("qwen2_5_vl", ("qwen2_5_vl",), merged_grid, box_format="qwen2_5_vl", grounding_prompt=LOCATE)
QWEN3_VL = Family(
    "qwen3_vl",
    ("qwen3_vl", "qwen3_vl_moe"),
    merged_grid,
    box_format="qwen3_vl",
    grounding_prompt=LOCATE,
    note="deepstack features are added to image rows between the first layers; they are replayed exactly",
)
QWEN3_5 = Family(
    "qwen3_5",
    ("qwen3_5", "qwen3_5_moe"),
    merged_grid,
    box_format="qwen3_vl",
    grounding_prompt=LOCATE,
    replay="full",
    note="hybrid: only full-attention layers have heads, linear layers carry state, so every row is replayed; heads "
    "are cut before the output gate, which is the same as after it for a head that is zeroed",
)
