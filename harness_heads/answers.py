"""Free text -> the answer it gives: a letter, a number, yes or no, or one of the option texts.

Everything here returns ``None`` for "cannot be parsed" and never guesses: a task reports the share of parsable
answers beside its accuracy, because an intervention may cost the format and keep the content, or the other way round.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_THINK: Final = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN_THINK: Final = re.compile(r"^.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_GLM_BOX: Final = re.compile(r"<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|$)", re.DOTALL)
_SPECIAL: Final = re.compile(r"<\|[^|<>]*\|>|</?(?:s|ref|box|bos|eos|end_of_turn|start_of_turn|answer)>")
_FENCE: Final = re.compile(r"```[a-zA-Z]*\n?|```")
_BOXED: Final = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]*)\}?\}")

NUMBER_WORDS: Final = {
    word: value
    for value, word in enumerate(
        (
            *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
            *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
        )
    )
}
_YES: Final = frozenset(("yes", "true", "correct", "yeah", "indeed", "right"))
_NO: Final = frozenset(("no", "false", "incorrect", "nope", "wrong"))
_AFTER_LETTER: Final = ("because", "since", "as", "for", "is", "which", "and", "or", "but")
"""Words that may follow the letter A where it is an answer; before any other lower-case word it is an article."""


def plain_answer(text: str | None) -> str:
    """The answer without a model's wrapping: think blocks, fences, special tokens, boxes, emphasis, odd widths."""
    if not text:
        return ""
    text = unicodedata.normalize("NFKC", text)
    text = _THINK.sub("", text)
    text = _OPEN_THINK.sub("", text)  # the opening tag belongs to some chat templates
    box = _GLM_BOX.search(text)
    if box:
        text = box.group(1)
    boxed = _BOXED.findall(text)
    if boxed:
        text = boxed[-1]
    text = _FENCE.sub("", _SPECIAL.sub("", text))
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text).strip()


def parse_letter(text: str | None, letters: Sequence[str]) -> str | None:
    """The option letter that an answer gives, ``None`` where it gives none or more than one.

    Args:
        text: the model's words.
        letters: the letters on offer, upper case; others are ordinary words.
    """
    answer = plain_answer(text)
    known = "".join(letters)
    if not answer or not known:
        return None
    alone = re.fullmatch(rf"[\s(\[{{\"']*([{known}{known.lower()}])[\s)\]}}\"'.:,;!]*", answer)
    if alone:
        return alone.group(1).upper()
    for pattern in (
        rf"^[(\[]([{known}{known.lower()}])[)\]]",  # (b) the second
        rf"^([{known}{known.lower()}])[.):]\s",  # B. the second
    ):
        lead = re.match(pattern, answer)
        if lead:
            return lead.group(1).upper()
    for found in (_stated(answer, known), _mentioned(answer, known)):
        if len(found) == 1:
            return found.pop()
        if found:
            return None
    last = answer.splitlines()[-1]
    return parse_letter(last, letters) if last != answer else None


def _stated(answer: str, known: str) -> set[str]:
    """Letters of the last "the answer is X"."""
    matches = [
        m
        for m in re.finditer(
            rf"(?i:\b(?:answer|option|choice)\b(?:\s+(?:is|would be|should be))?)\s*:?\s*(?i:option\s+)?"
            rf"[(\[\"']?([{known}])(?![\w'])",
            answer,
        )
        if not _is_article(answer, m.start(1)) and not _is_negated(answer, m.start())
    ]
    return {matches[-1].group(1)} if matches else set()


def _mentioned(answer: str, known: str) -> set[str]:
    """Upper-case letters that stand alone and are neither articles nor denied."""
    return {
        m.group(1)
        for m in re.finditer(rf"(?<![\w'.])([{known}])(?![\w'])", answer)
        if not _is_article(answer, m.start(1)) and not _is_negated(answer, m.start(1))
    }


def _is_article(answer: str, at: int) -> bool:
    if answer[at] != "A":
        return False
    following = re.match(r"A\s+([a-z]+)", answer[at:])
    return following is not None and following.group(1) not in _AFTER_LETTER


def _is_negated(answer: str, at: int) -> bool:
    return (
        re.search(r"(?:\bnot|n't|\brather than|\binstead of|\bnor)\s+(?:option\s+)?[(\"']?$", answer[:at], re.I)
        is not None
    )


def parse_number(text: str | None) -> float | None:
    """The number an answer gives, in digits or as a word up to twenty; the stated one where there are several.

    "3 or 4" gives none; "2 + 1 = 3" and "the answer is 3" give 3.
    """
    answer = plain_answer(text)
    stated = re.findall(r"(?i:answer\s*(?:is|:)|=|total of)\s*(-?\d[\d,]*(?:\.\d+)?)", answer)
    if stated:
        return _number(stated[-1])
    digits = re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?!\w)", answer)
    values = {_number(d) for d in digits}
    if not digits:
        words = re.findall(r"[a-z]+", answer.casefold())
        values = {float(NUMBER_WORDS[w]) for w in words if w in NUMBER_WORDS}
        # "one of the three" counts three things
        if len(values) == 2 and 1.0 in values and re.search(r"\bone of\b", answer.casefold()):
            values.discard(1.0)
    return values.pop() if len(values) == 1 else None


def _number(digits: str) -> float:
    return float(digits.rstrip(",").replace(",", ""))


def parse_yes_no(text: str | None) -> bool | None:
    """True for yes, true, correct; False for no, false, incorrect; the first such word decides ("No, it is right")."""
    for word in re.findall(r"[a-z]+", plain_answer(text).casefold()):
        if word in _YES:
            return True
        if word in _NO:
            return False
    return None


def normalised(text: str) -> str:
    """Comparable form of an answer text: one Unicode form, case, white space, no outer punctuation or article."""
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    text = text.strip(" .,:;!?\"'()[]")
    return re.sub(r"^(?:the|an?)\s+(?=\S)", "", text)


def match_option(text: str | None, options: Sequence[str]) -> int | None:
    """Index of the option that an answer names.

    An answer equal to one option decides; else the one option that occurs in it as whole words, where of an option
    inside another that occurs too only the longer counts. ``None`` for no option, or more than one.
    """
    answer = normalised(plain_answer(text))
    forms = [normalised(option) for option in options]
    if not answer:
        return None
    equal = [i for i, form in enumerate(forms) if form == answer]
    if equal:
        return equal[0] if len(equal) == 1 else None
    found = [i for i, form in enumerate(forms) if form and re.search(rf"(?<!\w){re.escape(form)}(?!\w)", answer)]
    longest = [i for i in found if not any(j != i and forms[i] != forms[j] and forms[i] in forms[j] for j in found)]
    return longest[0] if len(longest) == 1 else None


def parse_choice(text: str | None, letters: Sequence[str], options: Sequence[str]) -> str | None:
    """The letter that an answer gives, by letter or by an option's text.

    An answer that *is* an option's text is read as that option first: options may look like letters ("A", "D").
    """
    answer = normalised(plain_answer(text))
    exact = [i for i, option in enumerate(options) if normalised(option) == answer]
    if len(exact) == 1 and not (len(answer) == 1 and answer.upper() in letters):
        return letters[exact[0]]
    letter = parse_letter(text, letters)
    if letter is not None:
        return letter
    index = match_option(text, options)
    return None if index is None else letters[index]
