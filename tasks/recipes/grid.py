"""``grid_2x2``: four images in a grid, one option per cell.

With ``op: steer`` (CERS) the question does not say which cell is meant, so that the answer follows the attention: the
set is steered onto the cell of the right answer and onto a distractor's cell. Arms: *grid*, *oracle* (the cell is
named: expect about 1), *blank* (floor).

With ``op: mask`` (NCS_grid) the question names the cell; the set is blinded to the right cell and to a distractor's.
Arms: *grid* (which is its own oracle), *pixels_correct* and *pixels_distractor* (that cell blanked in pixels: the
ceiling of the contrast without any leak through the vision encoder), *blank*.

``audited: N`` names the arms by which :mod:`harness_heads.protocol.leaks` drops items that leak, and how many of the
others count. ``outside`` takes wrong options from outside the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import MIN_SIDE, Region
from harness_heads.tasks.balance import crossed, dealt, others
from harness_heads.tasks.items import LETTERS, Arm, Item, Picture
from harness_heads.tasks.pictures import blank, erase, grid, grid_boxes
from harness_heads.tasks.prompts import CELL_NAMES, lettered
from harness_heads.tasks.readers import check_reader
from harness_heads.tasks.recipe import Option, Recipe, needs_question
from harness_heads.tasks.recipes.classes import ClassPool
from harness_heads.tasks.sources import Source
from harness_heads.tasks.spec import TaskSpec

MIN_CELL = MIN_SIDE // 2
"""Side of the smallest cell: two of them are the thinnest image that models take."""
ROW_FIELDS = {"question": ("question",), "named_question": ("cell", "question")}
"""Placeholders of grids whose rows bring their own question."""


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
        in_cells = list(distractors)
        rng.shuffle(in_cells)
        in_cells.insert(cell, target)
        pictures = [pool.next_picture(key) for key in in_cells]
        offered = _offered(pool, distractors, in_cells[wrong], target, RECIPE.option(spec, "outside"), rng)
        offered.insert(letter, target)
        options = [pool.name(key) for key in offered]
        side = RECIPE.option(spec, "cell")
        picture = grid(pictures, (side, side), RECIPE.option(spec, "fit"), gap=RECIPE.option(spec, "gap"))
        extra = {
            "cell": {"correct": cell, "distractor": wrong},
            "distractor_option": offered.index(in_cells[wrong]),
            "cells": [LETTERS[offered.index(key)] if key in offered else None for key in in_cells],
        }
        keep = RECIPE.option(spec, "audited")
        arms = grid_arms(spec, picture, options, cell, wrong, audited=keep > 0)
        if keep:
            extra["audit"] = {
                "keep": keep,
                "seen": "oracle" if "oracle" in arms else "grid",
                "unseen": ["blank", "pixels_correct"],
            }
        items.append(Item(tuple(options), letter, arms, pictures[cell]["sha"], extra))
    return items


def _offered(
    pool: ClassPool, in_grid: Sequence[str], wrong: str, target: str, outside: int, rng: np.random.Generator
) -> list[str]:
    """Classes of the three wrong options: the grid's, the last ``outside`` of them replaced by classes not in it.

    With none from outside, a model that is blind to one cell still finds its answer: the option that no other cell
    shows. The class of the distractor's cell always stays an option.
    """
    if not outside:
        return list(in_grid)
    kept = [wrong, *(key for key in in_grid if key != wrong)][: 3 - outside]
    offered = [*kept, *pool.draw(outside, [target, *in_grid], rng)]
    rng.shuffle(offered)
    return offered


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
        audited: CERS also shows the grid with the right cell blanked in pixels, as NCS_grid always does.
    """
    boxes = grid_boxes(picture)
    regions = {"correct": Region((boxes[cell],)), "distractor": Region((boxes[wrong],))}
    template = str(spec.options.get("named_question", ""))
    text = template.replace("{cell}", cell_names[cell]).replace("{question}", question)
    named = lettered(text, options, spec.instruction)
    if spec.probe.get("op", "steer") == "steer":
        asked = lettered((spec.question or "{question}").replace("{question}", question), options, spec.instruction)
        steered = (spec.condition("steer", "correct"), spec.condition("steer", "distractor"))
        arms = {
            "grid": Arm(asked, (picture,), conditions=steered, regions=regions),
            "oracle": Arm(named, (picture,)),
            "blank": Arm(asked, (blank(picture),)),
        }
        if audited:
            arms["pixels_correct"] = Arm(named, (erase(picture, [boxes[cell]]),))
        return arms
    hidden = (spec.condition("mask", "correct"), spec.condition("mask", "distractor"))
    return {
        "grid": Arm(named, (picture,), conditions=hidden, regions=regions),
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
    if options.get("audited", 0) > config["n"]:
        raise HarnessHeadsError(f"options.audited: {options['audited']} items cannot be kept of n: {config['n']}")


def check_asked(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """The same, where rows bring no question: steering asks one that names no cell."""
    check_grid(options, config)
    if config.get("probe", {}).get("op", "steer") == "steer":
        needs_question(config)


def check_rows(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """The same, where rows bring their own question: its columns must be there."""
    check_grid(options, config)
    check_reader(options, config)


GRID_OPTIONS = {
    "named_question": Option("", "question naming the cell by {cell}: the oracle of CERS, the question of NCS_grid"),
    "cell": Option(224, "side of a cell in pixels", low=MIN_CELL),
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
        "outside": Option(0, "how many wrong options no cell shows: with none, what is hidden can be told", (0, 1, 2)),
        "audited": Option(0, "items that count after the leak audit has dropped those that leak; 0: no audit"),
    },
    fields={"question": (), "named_question": ("cell",)},
    check=check_asked,
)
