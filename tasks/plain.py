"""What can be said of a stock model: accuracy per arm, and that nothing was intervened on."""

from __future__ import annotations

from collections.abc import Sequence

from harness_heads.answers import parse_letter
from harness_heads.probes import ItemRecord


def plain_summary(records: Sequence[ItemRecord]) -> dict[str, float | str]:
    """Per arm the accuracy and the share of parsable answers; ``"not estimable"`` where an arm has no answer."""
    summary: dict[str, float | str] = {"intervention": "no intervention (stock model)"}
    for arm in dict.fromkeys(arm for record in records for arm in record.plain):
        right, parsed, total = 0, 0, 0
        for record in records:
            if arm not in record.plain:
                continue
            total += 1
            letter = parse_letter(record.plain[arm], record.letters)
            parsed += letter is not None
            right += letter is not None and letter == correct_letter(record, arm)
        summary[f"accuracy {arm}"] = _share(right, total)
        summary[f"parsable {arm}"] = _share(parsed, total)
    return summary


def correct_letter(record: ItemRecord, arm: str) -> str | None:
    """The right letter of an arm: its own, where the arm asks for something else than the item."""
    own = record.extra.get("correct", {}).get(arm)
    if own is not None:
        return str(own)
    return None if record.correct is None else record.letters[record.correct]


def _share(part: int, total: int) -> float | str:
    return part / total if total else "not estimable"
