"""Readers: rows of a benchmark -> questions.

A reader turns rows into questions with a right answer and the row's own wrong ones; rows that cannot be read
unambiguously are left out and counted, never guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from loguru import logger

from harness_heads.answers import normalised
from harness_heads.errors import HarnessHeadsError
from harness_heads.plain import shown
from harness_heads.tasks.answer_forms import (
    listed,
    literal,
    numbers,
    open_answer,
    right_choice,
    said,
    split_options,
    verdict_of,
)
from harness_heads.tasks.items import Picture
from harness_heads.tasks.pictures import marks
from harness_heads.tasks.question import Question, Unreadable
from harness_heads.tasks.recipe import Option
from harness_heads.tasks.sources import BadImage, Source
from harness_heads.tasks.spec import TaskSpec

_REFERS = re.compile(r"\b(?:all|none|both|neither) of\b|\b[A-H] and [A-H]\b|\bthe above\b", re.IGNORECASE)
"""Options that speak of other options' letters or places cannot be re-lettered."""

READER_OPTIONS: dict[str, Option] = {
    "reader": Option("columns", "how rows are read", ("columns", "in_question", "spatialrgpt", "vaw")),
    "answer": Option(
        "letter",
        "what the answer column holds: letter, text of the choice, index from 0, or an open value",
        ("letter", "text", "index", "value"),
    ),
    "pools": Option([], "lists of open answers that are wrong for each other (colours; directions)"),
    "fill": Option([], "further wrong answers for rows that have too few"),
    "keep": Option([], "rows kept: [column, value, value ...] of the column role 'group'"),
}
QUESTION_COLUMNS: dict[str, str] = {
    "question": "the question's text",
    "choices": "list of option texts",
    "answer": "the right answer",
    "group": "kind of the row, for 'keep'",
    "boxes": "boxes that the question speaks of, drawn with labels",
    "object": "noun of the object (reader vaw)",
    "negative": "attributes that are wrong (reader vaw)",
    "cluster": "what rows share, resampled whole; the image itself by default",
}


_READS: dict[str, tuple[str, ...]] = {
    "columns": ("question",),
    "in_question": ("question",),
    "spatialrgpt": ("question", "group", "boxes"),
    "vaw": ("object", "negative", "boxes"),
}
"""Columns without which a reader cannot read, beside image and answer."""


def check_reader(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise where a reader lacks a column, or an option that it reads is of no use to it."""
    reader = options.get("reader", READER_OPTIONS["reader"].default)
    needed = [*_READS[reader], *(["group"] if options.get("keep") else [])]
    missing = [role for role in needed if role not in config.get("columns", {})]
    if missing:
        why = "options.keep" if missing == ["group"] and reader != "spatialrgpt" else f"reader {reader!r}"
        raise HarnessHeadsError(f"columns.{missing[0]} is missing: {why} reads it ({QUESTION_COLUMNS[missing[0]]})")
    for number, pool in enumerate(options.get("pools", ())):
        if not isinstance(pool, list) or len(pool) < 2:
            raise HarnessHeadsError(
                f"options.pools: pool {number} is {shown(pool)}; write a list of answers, two or more"
            )
    for key in ("fill", "keep"):
        for value in options.get(key, ()):
            if isinstance(value, list | dict) or value is None:
                raise HarnessHeadsError(f"options.{key}: {shown(value)} is no answer or value; write words or numbers")


def read_questions(spec: TaskSpec, source: Source, option: Callable[[str], Any]) -> list[Question]:
    """Every readable row in order; how many were left out, and why, is logged in one line.

    Args:
        spec: the task.
        source: its rows.
        option: value of a recipe option.
    """
    for column in spec.columns.values():
        for part in column.split(","):
            source.need(part)
    read = _READERS[option("reader")]
    questions, left_out = [], Counter[str]()
    for row in range(len(source)):
        try:
            if not _kept(spec, source, row, option("keep")):
                raise Unreadable("not among options.keep")
            questions.append(_sound(read(spec, source, row, option)))
        except Unreadable as reason:
            left_out[str(reason)] += 1
    if left_out:
        reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        if not questions:
            raise HarnessHeadsError(
                f"{spec.task}: no row of {source.label} can be read: {reasons}; see columns and options"
            )
        logger.info(f"{spec.task}: {len(questions)} of {len(source)} rows read, left out: {reasons}")
    return questions


def _kept(spec: TaskSpec, source: Source, row: int, keep: Sequence[Any]) -> bool:
    return not keep or str(source.value(row, spec.columns["group"])) in {str(v) for v in keep}


def _sound(question: Question) -> Question:
    if not question.text.strip():
        raise Unreadable("without a question")
    forms = [normalised(v) for v in (question.answer, *question.wrong)]
    if not all(forms):
        raise Unreadable("with an empty option")
    if len(set(forms)) < len(forms):
        raise Unreadable("with equal options")
    if any(_REFERS.search(v) for v in (question.answer, *question.wrong)):
        raise Unreadable("with options that speak of other options")
    return question


def _common(spec: TaskSpec, source: Source, row: int) -> tuple[Picture, str]:
    try:
        picture = source.picture(row, spec.columns["image"])
    except BadImage as error:
        if not source.decode_first:
            raise
        raise Unreadable("with an image that cannot be used") from error
    shared = source.value(row, spec.columns["cluster"]) if "cluster" in spec.columns else None
    return picture, picture["sha"] if shared is None else str(shared)  # rows without one do not all share it


def _columns(spec: TaskSpec, source: Source, row: int, option: Callable[[str], Any]) -> Question:
    picture, cluster = _common(spec, source, row)
    text = said(source.value(row, spec.columns["question"]))
    choices = source.value(row, spec.columns["choices"]) if "choices" in spec.columns else None
    answer = source.value(row, spec.columns["answer"])
    if "boxes" in spec.columns:
        picture = _with_boxes(picture, source.value(row, spec.columns["boxes"]))
    if choices is None or not len(choices := listed(choices)):
        value, kind = open_answer(answer, option("pools"))
        return Question(text, value, (), kind, picture, cluster)
    return _choice(text, [said(c) for c in choices], answer, option("answer"), picture, cluster)


def _choice(text: str, choices: list[str], answer: Any, form: str, picture: Picture, cluster: str) -> Question:
    index = right_choice(choices, answer, form)
    wrong = tuple(c for i, c in enumerate(choices) if i != index)
    return Question(text, choices[index], wrong, "choice", picture, cluster)


def _in_question(spec: TaskSpec, source: Source, row: int, option: Callable[[str], Any]) -> Question:
    picture, cluster = _common(spec, source, row)
    stem, choices = split_options(said(source.value(row, spec.columns["question"])))
    answer = source.value(row, spec.columns["answer"])
    return _choice(stem, choices, answer, option("answer"), picture, cluster)


def _spatialrgpt(spec: TaskSpec, source: Source, row: int, option: Callable[[str], Any]) -> Question:
    """Predicate rows of SpatialRGPT-Bench: a yes/no question about labelled regions, which we draw."""
    picture, cluster = _common(spec, source, row)
    kind = literal(source.value(row, spec.columns["group"]))
    if not (isinstance(kind, Mapping) and str(kind.get("category", "")).endswith("_predicate")):
        raise Unreadable("that are no yes/no questions")
    turns = [t for t in listed(source.value(row, spec.columns["answer"])) if isinstance(t, Mapping)]
    verdict = verdict_of(str(next((t.get("value", "") for t in turns if t.get("from") == "gpt"), "")))
    picture = _with_boxes(picture, source.value(row, spec.columns["boxes"]))
    text = said(source.value(row, spec.columns["question"]))
    return Question(text, "yes" if verdict else "no", (), "yes_no", picture, cluster)


def _vaw(spec: TaskSpec, source: Source, row: int, option: Callable[[str], Any]) -> Question:
    """VAW: one right attribute against three that annotators called wrong (unlabelled ones are unknown, not wrong)."""
    cells = (source.value(row, spec.columns[role]) for role in ("answer", "negative"))
    right, wrong = ([said(v) for v in listed([] if cell is None else cell)] for cell in cells)
    if not right or len(wrong) < 3:
        raise Unreadable("without a right and three wrong attributes")
    picture, cluster = _common(spec, source, row)
    box = numbers(source.value(row, spec.columns["boxes"]))
    if len(box) != 4:
        raise Unreadable("with a box of other than four numbers")
    x, y, w, h = box
    if w <= 0 or h <= 0:
        raise Unreadable("with an empty box")
    noun = said(source.value(row, spec.columns["object"]))
    if not noun.strip():
        raise Unreadable("without a noun")
    marked = marks(picture, [[x, y, x + w, y + h]], [""])
    return Question(f"Which word describes the marked {noun}?", right[0], tuple(wrong), "choice", marked, cluster)


def _with_boxes(picture: Picture, boxes: Any) -> Picture:
    if boxes is None or not len(boxes := listed(boxes)):
        return picture
    rows = boxes if isinstance(boxes[0], list | tuple | np.ndarray) else [boxes]
    drawn = [numbers(box)[:4] for box in rows]
    if any(len(box) != 4 for box in drawn):
        raise Unreadable("with a box of other than four numbers")
    return marks(picture, drawn, [f"Region [{i}]" for i in range(len(rows))])


_READERS: dict[str, Callable[[TaskSpec, Source, int, Callable[[str], Any]], Question]] = {
    "columns": _columns,
    "in_question": _in_question,
    "spatialrgpt": _spatialrgpt,
    "vaw": _vaw,
}
