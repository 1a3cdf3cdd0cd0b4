"""``same_image_overlay``: four copies of one photo, each with an answer written on it, and the row's own question.

The photo is the same in every cell, so all that tells the cells apart is the answer on them: the set is steered onto
the copy with the right answer, or onto one with a wrong answer. The answer stands in a band under the photo, so that it
hides nothing that the question is about.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from harness_heads.tasks.balance import crossed, dealt, others
from harness_heads.tasks.items import Item
from harness_heads.tasks.pictures import caption, grid
from harness_heads.tasks.question import Unreadable, shuffled, wrong_answers
from harness_heads.tasks.readers import QUESTION_COLUMNS, READER_OPTIONS, read_questions
from harness_heads.tasks.recipe import Option, Recipe, enough
from harness_heads.tasks.recipes.grid import GRID_OPTIONS, MIN_CELL, ROW_FIELDS, check_rows, grid_arms
from harness_heads.tasks.sources import Source
from harness_heads.tasks.spec import TaskSpec


def build(spec: TaskSpec, source: Source) -> list[Item]:
    """Build the items."""
    option = partial(RECIPE.option, spec)
    rng = np.random.default_rng(spec.seed)
    questions = read_questions(spec, source, option)
    letters = dealt(spec.n, 4, rng)
    cells = crossed(letters, 4, rng)
    wrong_cells = others(cells, 4)
    items: list[Item] = []
    for question in shuffled(questions, rng):
        if len(items) == spec.n:
            break
        try:
            options = wrong_answers(question, 3, option, rng)
        except Unreadable:
            continue
        letter, cell, wrong = letters[len(items)], cells[len(items)], wrong_cells[len(items)]
        in_cells: list[str] = list(rng.permutation(options))
        in_cells.insert(cell, question.answer)
        options.insert(letter, question.answer)
        said = [str(text) for text in in_cells]
        if option("correct_overlay") == "none":
            said[cell] = ""
        side = option("cell")
        copies = [caption(question.picture, text, (side, side)) for text in said]
        picture = grid(copies, (side, side), option("fit"), gap=option("gap"))
        arms = grid_arms(spec, picture, options, cell, wrong, question=question.text)
        extra = {
            "cell": {"correct": cell, "distractor": wrong},
            "distractor_option": options.index(str(in_cells[wrong])),
        }
        items.append(Item(tuple(options), letter, arms, question.cluster, extra))
    enough(len(items), spec, "rows with four options")
    return items


RECIPE = Recipe(
    "same_image_overlay",
    2,
    build,
    {"image": "the photo", "answer": "the right answer"},
    {k: v for k, v in QUESTION_COLUMNS.items() if k != "answer"},
    {
        **GRID_OPTIONS,
        **READER_OPTIONS,
        "cell": Option(336, "side of a cell in pixels", low=MIN_CELL),
        "gap": Option(6, "white line between cells in pixels"),
        "correct_overlay": Option(
            "right", "what stands on the right copy (the paper leaves it open)", ("right", "none")
        ),
    },
    fields=ROW_FIELDS,
    check=check_rows,
)
