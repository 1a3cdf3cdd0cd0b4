"""DeepSeek-VL: one square grid over the image padded to a square."""

from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.grids import per_image, size_of, square_side
from harness_heads.layouts import ImageTokens, grid_cells


def padded_square(prompt: PromptInputs) -> tuple[ImageTokens, ...]:
    """Cells reach beyond the image where the square does."""
    images = []
    for number, positions in enumerate(per_image(prompt)):
        side = square_side(len(positions))
        size = size_of(prompt, number)
        width, height = size or (1, 1)
        x, y = (max(width, height) - width) / 2 / width, (max(width, height) - height) / 2 / height
        images.append(ImageTokens(positions, grid_cells(side, side, (-x, -y, 1 + x, 1 + y)), size))
    return tuple(images)


DEEPSEEK_VL = Family(
    "deepseek_vl",
    ("deepseek_vl", "deepseek_vl_hybrid"),
    padded_square,
    turn_start=("User:",),
    turn_end=("Assistant:",),
)
