"""``plain_mcq``: a benchmark's own questions on one image.

``ask: options`` gives the arms of NCS on a benchmark: *matched* (the row's image), *mismatched* (another row's image
under the same question, options and right letter; it shows an answer that is none of the options, where there is one),
*blank*. ``ask: generate`` lets the model answer in words, with
letters where the row has choices and freely where it has none; accuracy, the share of parsable answers and accuracy
among them come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from harness_heads.answers import normalised
from harness_heads.errors import HarnessHeadsError
from harness_heads.tasks.balance import dealt
from harness_heads.tasks.items import Arm, Item
from harness_heads.tasks.pictures import blank
from harness_heads.tasks.prompts import lettered
from harness_heads.tasks.question import Question, Unreadable, shuffled, wrong_answers
from harness_heads.tasks.readers import QUESTION_COLUMNS, READER_OPTIONS, check_reader, read_questions
from harness_heads.tasks.recipe import Option, Recipe, enough
from harness_heads.tasks.sources import Source
from harness_heads.tasks.spec import TaskSpec


def build(spec: TaskSpec, source: Source) -> list[Item]:
    """Build the items."""
    option = partial(RECIPE.option, spec)
    rng = np.random.default_rng(spec.seed)
    questions = read_questions(spec, source, option)
    scored = option("ask") == "options"
    schedules = {k: dealt(-(-spec.n // k) * k, k, rng) for k in range(2, 9)}
    dealt_so_far = dict.fromkeys(schedules, 0)
    items: list[Item] = []
    for question in shuffled(questions, rng):
        if len(items) == spec.n:
            break
        try:
            wrong = wrong_answers(question, 3, option, rng) if scored else list(rng.permutation(question.wrong))
            other = _other_image(question, wrong, questions, rng) if scored else None
        except Unreadable:
            continue
        if not wrong:
            items.append(_open(spec, question))
            continue
        k = len(wrong) + 1
        letter = schedules[k][dealt_so_far[k]]
        dealt_so_far[k] += 1
        options = [str(w) for w in wrong]
        options.insert(letter, question.answer)
        text = lettered((spec.question or "{question}").replace("{question}", question.text), options, spec.instruction)
        if other is None:
            arms = {"plain": Arm(text, (question.picture,), ask="generate")}
            extra: dict[str, Any] = {"answer_kind": "choice"}
        else:
            masked = (spec.condition("mask", "image"),)
            shown = blank(question.picture) if option("mismatched") == "grey" else other.picture
            arms = {
                "matched": Arm(text, (question.picture,), conditions=masked),
                "mismatched": Arm(text, (shown,), conditions=masked),
            }
            if option("mismatched") != "grey":
                arms["blank"] = Arm(text, (blank(question.picture),))
            shows_option = normalised(other.answer) in {normalised(o) for o in options}
            extra = {
                "mismatched": option("mismatched"),
                "mismatched_shows_option": shows_option and shown is other.picture,
            }
        items.append(Item(tuple(options), letter, arms, question.cluster, extra))
    enough(len(items), spec, "usable rows")
    return items


def _open(spec: TaskSpec, question: Question) -> Item:
    """A question without choices, answered freely."""
    text = (spec.question or "{question}").replace("{question}", question.text)
    hint = {"number": "Answer with a single number.", "yes_no": "Answer yes or no."}.get(
        question.kind, "Answer with a single word or phrase."
    )
    arm = Arm(f"{text}\n{hint}", (question.picture,), ask="generate")
    kind = question.kind if question.kind in ("number", "yes_no") else "text"
    return Item((), None, {"plain": arm}, question.cluster, {"answer": question.answer, "answer_kind": kind})


def _other_image(
    question: Question, wrong: Sequence[str], questions: list[Question], rng: np.random.Generator
) -> Question:
    """A question on another image: its image must not answer ours.

    Its answer is none of the options; where every other answer is one (yes and no, left and right), it is at least not
    the right one, and the record says so.
    """
    right, offered = normalised(question.answer), {normalised(o) for o in wrong}
    shows_an_option: Question | None = None
    for other in shuffled(questions, rng):
        said = normalised(other.answer)
        if other.cluster == question.cluster or said == right:
            continue
        if said not in offered:
            return other
        shows_an_option = shows_an_option or other
    if shows_an_option is None:
        raise Unreadable("without another image")
    return shows_an_option


def _check(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    if config.get("probe", {}).get("op") == "steer":
        raise HarnessHeadsError("probe.op: one image has no cells to steer to; use mask or ablate")
    if options.get("ask") == "generate" and config.get("probe"):
        raise HarnessHeadsError("probe: an answer in words (ask: generate) sends none; leave probe out")
    check_reader(options, config)


RECIPE = Recipe(
    "plain_mcq",
    2,
    build,
    {"image": "the image", "answer": "the right answer"},
    {k: v for k, v in QUESTION_COLUMNS.items() if k != "answer"},
    {
        **READER_OPTIONS,
        "ask": Option("options", "log-probabilities of the letters, or an answer in words", ("options", "generate")),
        "mismatched": Option("other_item", "what the mismatched arm shows", ("other_item", "grey")),
    },
    fields={"question": ("question",)},
    max_new_tokens=64,
    check=_check,
)
