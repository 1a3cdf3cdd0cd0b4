"""``image_retrieval`` and ``text_options``: four different images, a question about one of them.

``image_retrieval`` offers the answers of the four images to the same kind of question (``choices: cells``) or the
row's own choices (``choices: own``). ``text_options`` offers candidate values in text: the right one and near misses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness_heads.answers import normalised
from harness_heads.tasks.balance import crossed, dealt, others
from harness_heads.tasks.items import Item
from harness_heads.tasks.pictures import grid
from harness_heads.tasks.question import Question, Unreadable, shuffled, wrong_answers
from harness_heads.tasks.readers import QUESTION_COLUMNS, READER_OPTIONS, read_questions
from harness_heads.tasks.recipe import Option, Recipe, enough
from harness_heads.tasks.recipes.grid import GRID_OPTIONS, MIN_CELL, ROW_FIELDS, check_rows, grid_arms
from harness_heads.tasks.sources import Source
from harness_heads.tasks.spec import TaskSpec


def _build(recipe: Callable[[], Recipe], spec: TaskSpec, source: Source) -> list[Item]:
    """Build the items of either recipe."""
    option = partial(recipe().option, spec)
    rng = np.random.default_rng(spec.seed)
    questions = read_questions(spec, source, option)
    own = spec.recipe == "text_options" or option("choices") == "own"
    letters = dealt(spec.n, 4, rng)
    cells = crossed(letters, 4, rng)
    wrong_cells = others(cells, 4)
    items: list[Item] = []
    for question in shuffled(questions, rng):
        if len(items) == spec.n:
            break
        try:
            companions = _companions(question, questions, rng, distinct=not own)
            options = wrong_answers(question, 3, option, rng) if own else [c.answer for c in companions]
        except Unreadable:
            continue
        letter, cell, wrong = letters[len(items)], cells[len(items)], wrong_cells[len(items)]
        shown = list(companions)
        shown.insert(cell, question)
        if not own:
            options = [str(v) for v in rng.permutation(options)]
        options.insert(letter, question.answer)
        side = option("cell")
        picture = grid([q.picture for q in shown], (side, side), option("fit"), gap=option("gap"))
        extra: dict[str, Any] = {"cell": {"correct": cell, "distractor": wrong}}
        if not own:
            extra["distractor_option"] = options.index(shown[wrong].answer)
        arms = grid_arms(spec, picture, options, cell, wrong, question=question.text)
        items.append(Item(tuple(options), letter, arms, question.cluster, extra))
    enough(len(items), spec, "questions with three other images beside them")
    return items


def _companions(
    question: Question, questions: list[Question], rng: np.random.Generator, *, distinct: bool
) -> list[Question]:
    """Three questions on other images; ``distinct``: of the same kind, and with four different answers in all."""
    chosen: list[Question] = []
    answers, images = {normalised(question.answer)}, {question.cluster}
    for other in shuffled(questions, rng):
        if other.cluster in images or (
            distinct and (other.kind != question.kind or normalised(other.answer) in answers)
        ):
            continue
        chosen.append(other)
        images.add(other.cluster)
        answers.add(normalised(other.answer))
        if len(chosen) == 3:
            return chosen
    raise Unreadable("without three other images")


_COLUMNS = {k: v for k, v in QUESTION_COLUMNS.items() if k != "answer"}
_OPTIONS = {
    **GRID_OPTIONS,
    **READER_OPTIONS,
    "cell": Option(336, "side of a cell in pixels", low=MIN_CELL),
    "fit": Option("contain", "how an image is fitted into its cell", ("cover", "contain")),
    "gap": Option(6, "white line between cells in pixels"),
}

RETRIEVAL: Recipe = Recipe(
    "image_retrieval",
    2,
    partial(_build, lambda: RETRIEVAL),
    {"image": "the image", "answer": "the right answer"},
    _COLUMNS,
    {**_OPTIONS, "choices": Option("cells", "answers of the four images, or the row's own", ("cells", "own"))},
    fields=ROW_FIELDS,
    check=check_rows,
)
TEXT_OPTIONS: Recipe = Recipe(
    "text_options",
    2,
    partial(_build, lambda: TEXT_OPTIONS),
    {"image": "the image", "answer": "the right answer"},
    _COLUMNS,
    _OPTIONS,
    fields=ROW_FIELDS,
    check=check_rows,
)
