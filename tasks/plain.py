"""What answers in words show: accuracy, the share that can be parsed, and accuracy among those.

That is all there is to a stock model, and the whole result of tasks that are answered in words under an intervention:
accuracy that falls with the parsable share lost the format, accuracy that falls within it lost the content.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness_heads.answers import normalised, parse_choice, parse_number, parse_yes_no, plain_answer
from harness_heads.boxes import parse_box
from harness_heads.probes import ItemRecord
from harness_heads.regions import iou

STOCK = "no intervention (stock model)"
STOCK_FRAME = "qwen3_vl"
"""Frame in which a stock model's boxes are read: the one that the prompt of the request asks for."""


def plain_summary(records: Sequence[ItemRecord]) -> dict[str, float | str]:
    """Rows per arm; ``"not estimable"`` where there is nothing to divide by."""
    summary: dict[str, float | str] = {}
    if any(record.extra.get("answer_kind") is None for record in records):
        summary["intervention"] = STOCK
    for arm in dict.fromkeys(arm for record in records for arm in record.plain):
        verdicts = [is_right(record, arm, record.plain[arm]) for record in records if arm in record.plain]
        parsed = [verdict for verdict in verdicts if verdict is not None]
        summary[f"accuracy {arm}"] = _share(sum(parsed), len(verdicts))
        summary[f"parsable {arm}"] = _share(len(parsed), len(verdicts))
        summary[f"accuracy among parsable {arm}"] = _share(sum(parsed), len(parsed))
    return summary


def is_right(record: ItemRecord, arm: str, text: str) -> bool | None:
    """Whether an answer is right; ``None`` if it cannot be parsed."""
    kind = record.extra.get("answer_kind", "choice")
    answer = str(record.extra.get("answer", ""))
    if "gold" in record.extra:
        width, height = record.extra["size"]
        box = parse_box(text, STOCK_FRAME, (width, height))
        return None if box is None else iou(box, tuple(record.extra["gold"])) >= 0.5
    if kind == "number":
        number = parse_number(text)
        return None if number is None else number == float(answer)
    if kind == "yes_no":
        said = parse_yes_no(text)
        return None if said is None else said == (answer == "yes")
    if kind == "text":
        plain = normalised(plain_answer(text))
        return None if not plain else plain == normalised(answer) or normalised(answer) in plain.split()
    letter = parse_choice(text, record.letters[: len(record.options)], record.options)
    return None if letter is None else letter == correct_letter(record, arm)


def correct_letter(record: ItemRecord, arm: str) -> str | None:
    """The right letter of an arm: its own, where the arm asks for something else than the item."""
    index = record.extra.get("correct", {}).get(arm, record.correct)
    return None if index is None else record.letters[index]


def _share(part: int, total: int) -> float | str:
    return part / total if total else "not estimable"
