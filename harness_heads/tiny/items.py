"""Training and test questions about one picture, with their answers token by token."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import wording
from .wording import CELLS, DIGITS, LETTERS, ORDINALS

Labels = NDArray[np.int64]
BOX_WEIGHT, END_WEIGHT = 0.35, 0.15
# without evidence the smaller digits are slightly preferred: equal targets leave the most probable letter to a
# constant bias, while this preference spreads it evenly over the letters
GUESS_SLOPE = 0.15


@dataclass(frozen=True)
class Part:
    """A piece of an answer. weight: Its tokens' share in the loss; letters: wanted chances of A to D, if no one
    letter is right."""

    text: str
    weight: float = 1.0
    letters: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Question:
    """A question and its answer. task: Name of the skill; text: As the user writes it; parts: The answer."""

    task: str
    text: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Scene:
    """What a picture shows. labels: Digit of each cell, -1 for none; marked: Framed cell, or None."""

    labels: Labels
    marked: int | None = None


def _options(rng: np.random.Generator, names: list[str]) -> tuple[tuple[str, str, str, str], list[int]]:
    """Names in random order, and for each name the index of its letter."""
    order = rng.permutation(4)
    letters = [int(np.flatnonzero(order == i)[0]) for i in range(4)]
    a, b, c, d = (names[i] for i in order)
    return (a, b, c, d), letters


def _choice(rng: np.random.Generator, task: str, question: str, names: list[str]) -> Question:
    """Multiple choice in which names[0] is right."""
    options, letters = _options(rng, names)
    return Question(task, wording.mcq(question, options), (Part(LETTERS[letters[0]]),))


def _guess(rng: np.random.Generator, task: str, question: str, names: list[str], slope: float) -> Question:
    """Multiple choice in which no option is right: chances fall with the option's digit by the slope."""
    options, letters = _options(rng, names)
    weights = np.exp([-slope * DIGITS.index(option) for option in options])
    chances = tuple((weights / weights.sum()).tolist())
    return Question(task, wording.mcq(question, options), (Part(LETTERS[letters[0]], letters=chances),))


def _others(rng: np.random.Generator, digit: int, count: int) -> list[int]:
    pool = np.array([other for other in range(10) if other != digit])
    return [int(other) for other in rng.choice(pool, size=count, replace=False)]


def matched(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit shown, among four."""
    digit = int(scene.labels[0])
    names = [DIGITS[d] for d in (digit, *_others(rng, digit, 3))]
    return _choice(rng, "matched", wording.SINGLE, names)


def unanswerable(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit shown, among four others (or any four, when none is shown)."""
    names = [DIGITS[d] for d in _others(rng, int(scene.labels[0]), 4)]
    return _guess(rng, "none", wording.SINGLE, names, GUESS_SLOPE)


def text_solvable(rng: np.random.Generator, scene: Scene) -> Question:
    """A word looked up among the options."""
    digit = int(rng.integers(10))
    names = [DIGITS[d] for d in (digit, *_others(rng, digit, 3))]
    return _choice(rng, "text", wording.text_solvable(digit), names)


def word(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit shown, as a word (training only)."""
    return Question("word", wording.SINGLE, (Part(DIGITS[scene.labels[0]]),))


def match(rng: np.random.Generator, scene: Scene) -> Question:
    """All four options named in another order, each with its letter (training only)."""
    names = [DIGITS[d] for d in rng.choice(10, size=4, replace=False)]
    options, letters = _options(rng, names)
    parts: list[Part] = []
    for i in rng.permutation(4):
        parts += [Part(" " + names[i], 0.0), Part(LETTERS[letters[i]])]
    return Question("match", wording.mcq("Match the digits.", options), tuple(parts))


def named(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit in a named cell, among the grid's four."""
    return _cell(rng, scene, "named", int(rng.integers(4)), None)


def marked(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit in the framed cell, among the grid's four."""
    if scene.marked is None:
        return named(rng, scene)
    return _cell(rng, scene, "marked", scene.marked, wording.MARKED)


def _cell(rng: np.random.Generator, scene: Scene, task: str, cell: int, question: str | None) -> Question:
    order = [cell, *(c for c in range(4) if c != cell)]
    names = [DIGITS[scene.labels[c]] for c in order]
    return _choice(rng, task, question or wording.named_cell(cell), names)


def ambiguous(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit shown, of a grid that shows all four options."""
    return _guess(rng, "ambiguous", wording.SINGLE, [DIGITS[d] for d in scene.labels], 0.0)


def find(rng: np.random.Generator, scene: Scene) -> Question:
    """The cell that shows a digit, among the four cells' names."""
    cell = int(rng.integers(4))
    order = [cell, *(c for c in range(4) if c != cell)]
    return _choice(rng, "find", wording.find_cell(int(scene.labels[cell])), [CELLS[c] for c in order])


def digits_of_cells(rng: np.random.Generator, scene: Scene) -> Question:
    """Every cell with its digit (training only)."""
    parts: list[Part] = []
    for cell in rng.permutation(4):
        parts += [Part(" " + CELLS[cell], 0.0), Part(DIGITS[scene.labels[cell]])]
    return Question("digits_of_cells", "List the digits.", tuple(parts))


def cells_of_digits(rng: np.random.Generator, scene: Scene) -> Question:
    """Every digit with its cell (training only)."""
    parts: list[Part] = []
    for cell in rng.permutation(4):
        parts += [Part(" " + DIGITS[scene.labels[cell]], 0.0), Part(" " + CELLS[cell])]
    return Question("cells_of_digits", "Match the cells.", tuple(parts))


def referring(rng: np.random.Generator, scene: Scene) -> Question:
    """The panel that shows a digit."""
    panel = int(rng.integers(6))
    return Question("referring", wording.referring(int(scene.labels[panel])), (Part(ORDINALS[panel]),))


def ordinal(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit in a panel."""
    panel = int(rng.integers(6))
    return Question("ordinal", wording.ordinal(panel), (Part(DIGITS[scene.labels[panel]]),))


def ordinal_mcq(rng: np.random.Generator, scene: Scene) -> Question:
    """The digit in a panel, among four of the strip."""
    order = rng.permutation(6)[:4]
    names = [DIGITS[scene.labels[p]] for p in order]
    return _choice(rng, "ordinal_mcq", wording.ordinal(int(order[0])), names)


def panels_of_digits(rng: np.random.Generator, scene: Scene) -> Question:
    """Every digit with its panel (training only)."""
    parts: list[Part] = []
    for panel in rng.permutation(6):
        parts += [Part(" " + DIGITS[scene.labels[panel]], 0.0), Part(ORDINALS[panel])]
    return Question("panels_of_digits", "Match the panels.", tuple(parts))


def digits_of_panels(rng: np.random.Generator, scene: Scene) -> Question:
    """Every panel with its digit (training only)."""
    parts: list[Part] = []
    for panel in rng.permutation(6):
        parts += [Part(" " + ORDINALS[panel], 0.0), Part(DIGITS[scene.labels[panel]])]
    return Question("digits_of_panels", "List the digits.", tuple(parts))


def cell_box(scene: Scene, place: int) -> tuple[int, int, int, int]:
    """Box of a cell in thousandths of the picture: x1, y1, x2, y2."""
    columns, rows = (6, 1) if len(scene.labels) == 6 else (2, 2)
    column, row = place % columns, place // columns
    return (
        round(1000 * column / columns),
        round(1000 * row / rows),
        round(1000 * (column + 1) / columns),
        round(1000 * (row + 1) / rows),
    )


def box(rng: np.random.Generator, scene: Scene) -> Question:
    """The box of a digit's cell."""
    place = int(rng.integers(len(scene.labels)))
    answer = wording.box_answer(*cell_box(scene, place))
    return Question("box", wording.locate(int(scene.labels[place])), (Part(answer, BOX_WEIGHT),))


Maker = Callable[[np.random.Generator, Scene], Question]
MAKERS: dict[str, Maker] = {
    "matched": matched,
    "none": unanswerable,
    "text": text_solvable,
    "word": word,
    "match": match,
    "named": named,
    "marked": marked,
    "ambiguous": ambiguous,
    "find": find,
    "digits_of_cells": digits_of_cells,
    "cells_of_digits": cells_of_digits,
    "referring": referring,
    "ordinal": ordinal,
    "ordinal_mcq": ordinal_mcq,
    "panels_of_digits": panels_of_digits,
    "digits_of_panels": digits_of_panels,
    "box": box,
}
