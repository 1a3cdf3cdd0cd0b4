"""What cells of benchmarks say: answers as letters, texts, numbers or sentences; options inside questions; literals.

Whatever could be read in two ways is :class:`Unreadable`, never guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness_heads.answers import normalised, parse_yes_no
from harness_heads.tasks.items import LETTERS
from harness_heads.tasks.question import Unreadable


def said(value: Any) -> str:
    """A cell's words: a text or a number; nothing is no word, least of all the word None.

    Raises:
        Unreadable: for a cell that holds something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str | int | float | np.generic):
        raise Unreadable("with a cell that is neither a text nor a number")
    return str(value)


def listed(value: Any) -> list[Any]:
    """A cell's list, also where a table holds it as text.

    Raises:
        Unreadable: for a cell that holds something else; a text is not read letter by letter.
    """
    value = literal(value) if isinstance(value, str) and value.strip() else value
    if not isinstance(value, list | tuple | np.ndarray):
        raise Unreadable("with a cell that is no list")
    return list(value)


def numbers(value: Any) -> list[float]:
    """A cell's list of numbers.

    Raises:
        Unreadable: for a cell that holds something else.
    """
    try:
        return [float(v) for v in listed(value)]
    except (TypeError, ValueError) as error:
        raise Unreadable("with a cell that is no list of numbers") from error


def open_answer(answer: Any, pools: Sequence[Sequence[Any]]) -> tuple[str, str]:
    """Text and kind of an answer without choices.

    Raises:
        Unreadable: for an answer that is neither a whole number, nor yes/no/true/false, nor in a pool.
    """
    text = str(answer).strip()
    if re.fullmatch(r"-?\d+(?:\.0+)?", text):
        return str(int(float(text))), "number"
    if normalised(text) in ("yes", "no", "true", "false"):
        return ("yes" if parse_yes_no(text) else "no"), "yes_no"
    for number, pool in enumerate(pools):
        if normalised(text) in {normalised(str(v)) for v in pool}:
            return text, str(number)
    raise Unreadable("with an open answer of no known kind")


def split_options(text: str) -> tuple[str, list[str]]:
    """A question with its options inside -> the question and the options.

    Reads ``Options: A: first, B: second`` (split at the letters, so commas in options are kept) and ``(A) first``.

    Raises:
        Unreadable: where fewer than two options can be told apart.
    """
    for mark, lead in (
        (r"(?<!\w){}:\s*", r"\n?\s*Options?:\s*"),
        (r"\s*\({}\)\s*", r"\n?\s*(?:Choices?|Options?):\s*"),
    ):
        starts: list[re.Match[str]] = []
        at = 0
        head = re.search(lead, text)
        if head is not None:
            at = head.end()
        for letter in LETTERS:
            found = re.compile(mark.format(letter)).search(text, at)
            if found is None:
                break
            starts.append(found)
            at = found.end()
        if len(starts) >= 2:
            ends = [m.start() for m in starts[1:]] + [len(text)]
            options = [text[m.end() : end].strip().rstrip(",.;").strip() for m, end in zip(starts, ends, strict=True)]
            stem = text[: head.start() if head else starts[0].start()].strip()
            return stem, options
    raise Unreadable("with options that cannot be told apart")


def right_choice(choices: Sequence[str], answer: Any, form: str) -> int:
    """Index of the right choice; ``form`` says what the answer is: ``letter``, ``text`` or ``index``."""
    if form == "index":
        if not re.fullmatch(r"\d{1,3}(?:\.0+)?", str(answer).strip()):
            raise Unreadable("with an answer that is no index")
        index = int(float(answer))
    elif form == "letter":
        letter = re.fullmatch(r"\s*\(?([A-H])\)?[.:]?\s*", str(answer))
        if letter is None:
            raise Unreadable("with an answer that is no letter")
        index = LETTERS.index(letter.group(1))
    else:
        found = [i for i, choice in enumerate(choices) if normalised(choice) == normalised(str(answer))]
        if len(found) != 1:
            raise Unreadable("with an answer that is none, or several, of the choices")
        index = found[0]
    if not 0 <= index < len(choices):
        raise Unreadable("with an answer beyond the choices")
    return index


def verdict_of(sentence: str) -> bool:
    """Yes or no of a gold sentence: by its first word, else by whether it denies."""
    first = re.match(r"\s*(yes|no|correct|incorrect|indeed|true|false)\b", sentence, re.IGNORECASE)
    if first:
        return bool(parse_yes_no(first.group(1)))
    if not sentence.strip():
        raise Unreadable("without a gold answer")
    return re.search(r"\bnot\b|n't\b", sentence) is None


def literal(value: Any) -> Any:
    """A cell that may hold a Python literal as text."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:  # as ast.literal_eval documents
        raise Unreadable("with a cell that is no literal") from error
