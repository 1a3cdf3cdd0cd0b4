"""How a question and its options become the text of a prompt: one form for every multiple-choice task."""

from __future__ import annotations

from collections.abc import Sequence

from harness_heads.tasks.items import LETTERS

CELL_NAMES = ("top left", "top right", "bottom left", "bottom right")


def lettered(question: str, options: Sequence[str], instruction: str = "") -> str:
    """The question, one option a line as ``A. text``, and the instruction, if any, on the last line."""
    lines = [question, *(f"{LETTERS[i]}. {text}" for i, text in enumerate(options))]
    return "\n".join([*lines, instruction] if instruction else lines)
