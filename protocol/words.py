"""Whether an answer in words is right: what a stock model says, or any model in a task that is answered in words.

Accuracy that falls with the share of parsable answers lost the format; accuracy that falls among the parsable ones lost
the content. Both are reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness_heads.answers import normalised, parse_choice, parse_number, parse_yes_no, plain_answer
from harness_heads.boxes import inside, parse_box, parse_points
from harness_heads.protocol.evidence import TaskEvidence
from harness_heads.regions import iou

STOCK_FRAME = "qwen3_vl"
"""Frame in which a stock model's boxes are read: the one that the prompt of the request asks for."""
NO_INTERVENTION = "no intervention (stock model)"
ANY_INTERVENTION = "that of the model class"
"""A task that is answered in words sends no probe: ablated or stock, the class that runs it decides what is done."""


def accuracies(task: TaskEvidence) -> dict[str, tuple[float, float, float]]:
    """Per arm: accuracy, share of answers that can be parsed, accuracy among those; NaN without any."""
    out = {}
    for arm, texts in task.plain.items():
        verdicts = [_verdict(task, item, arm, text) for item, text in enumerate(texts)]
        parsed = [verdict for verdict in verdicts if verdict is not None]
        out[arm] = (
            _share(sum(parsed), len(verdicts)),
            _share(len(parsed), len(verdicts)),
            _share(sum(parsed), len(parsed)),
        )
    return out


def intervention(task: TaskEvidence) -> str:
    """What was done to the heads that gave these answers, as far as the records say."""
    in_words = all("answer_kind" in detail["extra"] for detail in task.details)
    return ANY_INTERVENTION if in_words else NO_INTERVENTION


def verdict(
    text: str,
    extra: Mapping[str, Any],
    options: Sequence[str] = (),
    letters: Sequence[str] = (),
    correct: int = -1,
    mask: Sequence[Sequence[float]] = (),
) -> bool | None:
    """Whether an answer is right; ``None`` if it cannot be parsed.

    Args:
        text: the model's words.
        extra: the item's facts: ``gold`` and ``size`` for a box, ``answer_kind`` and ``answer`` for open answers.
        options, letters, correct: of a multiple choice.
        mask: boxes of which one must hold the answer's first point, where a point is asked for.
    """
    kind, answer = extra.get("answer_kind", "choice"), str(extra.get("answer", ""))
    if mask:
        points = parse_points(text, STOCK_FRAME, tuple(extra["size"]))
        return inside(points[0], mask) if points else None
    if "gold" in extra:
        box = parse_box(text, STOCK_FRAME, tuple(extra["size"]))
        return None if box is None else iou(box, tuple(extra["gold"])) >= 0.5
    if kind == "number":
        number = parse_number(text)
        return None if number is None else number == float(answer)
    if kind == "yes_no":
        said = parse_yes_no(text)
        return None if said is None else said == (answer == "yes")
    if kind == "text":
        plain = normalised(plain_answer(text))
        return re.search(rf"(?<!\w){re.escape(normalised(answer))}(?!\w)", plain) is not None if plain else None
    letter = parse_choice(text, letters[: len(options)], options)
    return None if letter is None else letter == letters[correct]


def _verdict(task: TaskEvidence, item: int, arm: str, text: str) -> bool | None:
    detail = task.details[item]
    region = (detail["regions"].get(arm) or {}).get("mask") or {}
    return verdict(
        text,
        detail["extra"],
        task.options[item],
        task.letters,
        int(task.right(arm)[item]),
        region.get("boxes", ()),
    )


def _share(part: int, total: int) -> float:
    return part / total if total else math.nan
