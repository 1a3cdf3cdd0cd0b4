"""``grid_2x2``: four images in a grid, one option per cell.

With ``op: steer`` (CERS) the question does not say which cell is meant, so that the answer follows the attention: the
set is steered onto the cell of the right answer and onto a distractor's cell. Arms: *grid*, *oracle* (the cell is
named: expect about 1), *blank* (floor).

With ``op: mask`` (NCS_grid) the question names the cell; the set is blinded to the right cell and to a distractor's.
Arms: *grid* (which is its own oracle), *pixels_correct* and *pixels_distractor* (that cell blanked in pixels: the
ceiling of the contrast without any leak through the vision encoder), *blank*. ``audited: true`` adds the whole image
masked, from which, with all heads blind, the leak audit keeps or drops an item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import Region
from harness_heads.tasks.balance import crossed, dealt, others
from harness_heads.tasks.items import LETTERS, Arm, Item, Picture
from harness_heads.tasks.pictures import blank, erase, grid, grid_boxes
from harness_heads.tasks.prompts import CELL_NAMES, lettered
from harness_heads.tasks.recipe import Option, Recipe
from harness_heads.tasks.recipes.classes import ClassPool
from harness_heads.tasks.sources import Source
from harness_heads.tasks.spec import TaskSpec


def build(spec: TaskSpec, source: Source) -> list[Item]:
    """Build the items."""
    rng = np.random.default_rng(spec.seed)
    pool = ClassPool(source, spec, rng, synonyms=bool(RECIPE.option(spec, "synonyms")))
    letters = dealt(spec.n, 4, rng)
    cells = crossed(letters, 4, rng)
    wrong_cells = others(cells, 4)
    items = []
    for target, letter, cell, wrong in zip(pool.targets(spec.n, rng), letters, cells, wrong_cells, strict=True):
        distractors = pool.draw(3, [target], rng)
        options = [pool.name(key) for key in distractors]
        options.insert(letter, pool.name(target))
        in_cells = list(distractors)
        rng.shuffle(in_cells)
        in_cells.insert(cell, target)
        pictures = [pool.next_picture(key) for key in in_cells]
        side = RECIPE.option(spec, "cell")
        picture = grid(pictures, (side, side), RECIPE.option(spec, "fit"), gap=RECIPE.option(spec, "gap"))
        extra = {
            "cell": {"correct": cell, "distractor": wrong},
            "distractor_option": options.index(pool.name(in_cells[wrong])),
            "cells": [LETTERS[options.index(pool.name(key))] for key in in_cells],
        }
        audited = bool(RECIPE.option(spec, "audited"))
        if audited:
            extra["audit"] = {"conditions": ["mask:image"], "arms": ["blank"]}
        arms = grid_arms(spec, picture, options, cell, wrong, audited=audited)
        items.append(Item(tuple(options), letter, arms, pictures[cell]["sha"], extra))
    return items


def grid_arms(
    spec: TaskSpec,
    picture: Picture,
    options: Sequence[str],
    cell: int,
    wrong: int,
    *,
    question: str = "",
    cell_names: Sequence[str] = CELL_NAMES,
    audited: bool = False,
) -> dict[str, Arm]:
    """The arms of one item on a grid or strip; shared by every recipe that builds one.

    Args:
        spec: its question (``{question}`` stands for the row's own) is asked; ``options.named_question`` also names the
            cell by ``{cell}``.
        picture: the grid.
        options: option texts.
        cell, wrong: cells of the right answer and of the distractor.
        question: the row's own question.
        cell_names: what the cells are called.
        audited: also mask the whole image.
    """
    boxes = grid_boxes(picture)
    regions = {"correct": Region((boxes[cell],)), "distractor": Region((boxes[wrong],))}
    template = str(spec.options.get("named_question", ""))
    text = template.replace("{cell}", cell_names[cell]).replace("{question}", question)
    named = lettered(text, options, spec.instruction)
    if spec.probe.get("op", "steer") == "steer":
        asked = lettered((spec.question or "{question}").replace("{question}", question), options, spec.instruction)
        steered = (spec.condition("steer", "correct"), spec.condition("steer", "distractor"))
        return {
            "grid": Arm(asked, (picture,), conditions=steered, regions=regions),
            "oracle": Arm(named, (picture,)),
            "blank": Arm(asked, (blank(picture),)),
        }
    hidden = [spec.condition("mask", "correct"), spec.condition("mask", "distractor")]
    if audited:
        hidden.append(spec.condition("mask", "image"))
    return {
        "grid": Arm(named, (picture,), conditions=tuple(hidden), regions=regions),
        "pixels_correct": Arm(named, (erase(picture, [boxes[cell]]),)),
        "pixels_distractor": Arm(named, (erase(picture, [boxes[wrong]]),)),
        "blank": Arm(named, (blank(picture),)),
    }


def check_grid(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """What every grid recipe needs from the YAML."""
    op = config.get("probe", {}).get("op", "steer")
    if op == "ablate":
        raise HarnessHeadsError("probe.op: a grid is steered (CERS) or masked (NCS_grid); ablation knows no cells")
    if "{cell}" not in options.get("named_question", ""):
        raise HarnessHeadsError("options.named_question is missing, or names no {cell}")
    if op == "mask" and config.get("question"):
        raise HarnessHeadsError("question: with probe.op mask the named_question is asked; leave question out")


GRID_OPTIONS = {
    "named_question": Option("", "question naming the cell by {cell}: the oracle of CERS, the question of NCS_grid"),
    "cell": Option(224, "side of a cell in pixels"),
    "fit": Option("cover", "how an image is fitted into its cell", ("cover", "contain")),
    "gap": Option(0, "white line between cells in pixels"),
}

RECIPE = Recipe(
    "grid_2x2",
    1,
    build,
    {"image": "the image", "label": "its class: a number with names, or a name"},
    options={
        **GRID_OPTIONS,
        "synonyms": Option(True, "whether commas in class names separate synonyms"),
        "audited": Option(False, "also mask the whole image, for the leak audit with all heads blind"),
    },
    check=check_grid,
)
