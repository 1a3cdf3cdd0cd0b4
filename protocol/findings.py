"""Finding: what a pitfall rule reports; and how a rule is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness_heads.protocol.analysis import Analysis


@dataclass(frozen=True)
class Finding:
    """One tripped rule at one place.

    Attributes:
        rule: name of the rule.
        where: what it is about, in words.
        text: what is wrong and what mends it.
        breaks: a claim that touches this place is not carried.
        tests: ids of the tests it touches; empty touches none in particular.
    """

    rule: str
    where: str
    text: str
    breaks: bool
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One pitfall: its name, what it guards against in one sentence, and the check."""

    name: str
    guards: str
    check: Callable[[Analysis], Iterator[Finding]]
