"""The recipes: a YAML names one of these, each in a file of its own."""

from __future__ import annotations

from harness_heads.tasks.recipes import grid, mcq
from harness_heads.tasks.recipes.base import Recipe

RECIPES: dict[str, Recipe] = {module.RECIPE.name: module.RECIPE for module in (mcq, grid)}
"""Recipe name -> recipe."""
