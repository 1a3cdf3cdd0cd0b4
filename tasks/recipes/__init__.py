"""The recipes: a YAML names one of these."""

from __future__ import annotations

from harness_heads.tasks.recipe import Recipe
from harness_heads.tasks.recipes import grid, grounding, mcq, overlay, plain, retrieval, strips

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        mcq.RECIPE,
        grid.RECIPE,
        overlay.RECIPE,
        retrieval.RETRIEVAL,
        retrieval.TEXT_OPTIONS,
        strips.RECIPE,
        grounding.RECIPE,
        plain.RECIPE,
    )
}
"""Recipe name -> recipe."""
