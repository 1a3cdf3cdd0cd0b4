"""Section and Report: what the templates walk through."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness_heads.protocol.checklist import Item
from harness_heads.protocol.claims import Verdict
from harness_heads.protocol.findings import Finding
from harness_heads.protocol.svg import Figure
from harness_heads.protocol.tables import Table


@dataclass(frozen=True)
class Section:
    """One part of a report."""

    id: str
    title: str
    lead: str = ""
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing to show."""
        return not self.figures and not self.tables


@dataclass(frozen=True)
class Sentence:
    """One line of the opening: what a set showed on a task.

    Attributes:
        mood: ``good`` (above its controls after adjustment), ``none`` (not above them), ``bad`` (cannot be judged).
    """

    text: str
    mood: str


@dataclass(frozen=True)
class Report:
    """Everything that is printed.

    Attributes:
        status: first line: exploratory, or the plan.
        badges: further facts a reader must know before anything else.
        sentences: the opening.  verdicts: the claims.
        counts: the checklist in numbers.
    """

    title: str
    status: str
    badges: tuple[str, ...]
    sentences: tuple[Sentence, ...]
    verdicts: tuple[Verdict, ...]
    counts: dict[str, int]
    sections: tuple[Section, ...]
    checklist: tuple[Item, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    digest: str
    rules: tuple[tuple[str, str, int], ...] = field(default=())
