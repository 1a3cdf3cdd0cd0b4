"""GLM-4V family: one merged grid per image; a thinking part before the answer."""

from harness_heads.families.base import Family
from harness_heads.families.grids import merged_grid

GLM4V = Family(
    "glm4v",
    ("glm4v", "glm4v_moe", "glm46v"),
    merged_grid,
    box_format="glm4v",
    grounding_prompt="Help me to locate {expression} in the image and give me its bounding boxes.",
    turn_start=("<|user|>",),
    turn_end=("<|assistant|>",),
    answer_prefix="<think></think><answer>",
)
