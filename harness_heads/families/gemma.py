"""Gemma 3 (square grid), Gemma 4 (grid that keeps the aspect ratio), PaliGemma (square grid, prefix attention)."""

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.grids import per_image, size_of, square_runs
from harness_heads.layouts import ImageTokens, grid_cells

_TURN, _TURN_END = ("<start_of_turn>user", "<|turn>user"), ("<end_of_turn>", "<turn|>")


def pooled_grid(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """Gemma 4: row-major grid of pooled patches; its shape is read off the patches' positions."""
    found = per_image(prompt)
    patches = prompt.inputs.get("image_position_ids")
    if not found:
        return ()
    if patches is None:
        raise HarnessHeadsError(
            "image layout of gemma4: inputs hold no image_position_ids; keep what the processor made"
        )
    pool = int(prompt.config.vision_config.pooling_kernel_size)
    images = []
    for number, positions in enumerate(found):
        columns = (int(patches[number, :, 0].max()) + 1) // pool
        rows = (int(patches[number, :, 1].max()) + 1) // pool
        images.append(ImageTokens(positions, grid_cells(rows, columns), size_of(prompt, number)))
    return tuple(images)


GEMMA3 = Family(
    "gemma3",
    ("gemma3",),
    square_runs,
    turn_start=_TURN,
    turn_end=_TURN_END,
    may_look_ahead=True,
    note="image tokens see their whole block; sliding layers cut image keys beyond their window",
)
GEMMA4 = Family(
    "gemma4",
    ("gemma4",),
    pooled_grid,
    turn_start=_TURN,
    turn_end=_TURN_END,
    may_look_ahead=True,
    note="models whose layers share keys and values with earlier ones run in plain batches",
)
PALIGEMMA = Family(
    "paligemma",
    ("paligemma",),
    square_runs,
    box_format="paligemma",
    grounding_prompt="detect {expression}",
    turn_start=(),
    turn_end=(),
    may_look_ahead=True,
    note="image and prefix see each other (prefix attention), so no row is unaffected and all are replayed",
)
