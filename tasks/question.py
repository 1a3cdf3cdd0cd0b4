"""Question: one row of a benchmark, whatever columns and spelling it came in, and its wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness_heads.answers import normalised
from harness_heads.tasks.items import Picture


@dataclass(frozen=True)
class Question:
    """One row.

    Attributes:
        text: the question without options.
        answer: text of the right answer.
        wrong: texts of the row's own wrong answers.
        kind: ``choice``, ``number``, ``yes_no``, or the number of the pool the answer belongs to.
        picture: the image, with marks where the question speaks of marks.
        cluster: image, or what the YAML says rows share.
    """

    text: str
    answer: str
    wrong: tuple[str, ...]
    kind: str
    picture: Picture
    cluster: str


class Unreadable(Exception):
    """A row that gives no unambiguous question; the message is counted."""


def wrong_answers(question: Question, count: int, option: Callable[[str], Any], rng: np.random.Generator) -> list[str]:
    """``count`` wrong answers: the row's own, near numbers, answers of its pool, then ``options.fill``.

    Raises:
        Unreadable: if there are too few.
    """
    candidates = list(rng.permutation(question.wrong)) if question.wrong else []
    if question.kind == "number":
        candidates += near_numbers(int(question.answer), rng)
    elif question.kind == "yes_no":
        candidates.append("no" if question.answer == "yes" else "yes")
    elif question.kind.isdigit():
        candidates += list(rng.permutation(option("pools")[int(question.kind)]))
    candidates += [str(v) for v in option("fill")]
    chosen: list[str] = []
    taken = {normalised(question.answer)}
    for candidate in map(str, candidates):
        if normalised(candidate) not in taken:
            taken.add(normalised(candidate))
            chosen.append(candidate)
        if len(chosen) == count:
            return chosen
    raise Unreadable("with too few wrong answers")


def near_numbers(value: int, rng: np.random.Generator) -> list[str]:
    """Six near misses of a count, none below 0, nearest first, ties in random order."""
    near = [v for d in (1, 2, 3, 4, 5, 6) for v in rng.permutation([value - d, value + d]).tolist() if v >= 0]
    return [str(v) for v in near[:6]]


def shuffled(questions: Sequence[Question], rng: np.random.Generator) -> Iterator[Question]:
    """The questions in random order, each once."""
    return (questions[i] for i in rng.permutation(len(questions)))
