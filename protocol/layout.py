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
        mood: ``good`` (a claim would be carried), ``none`` (not shown), ``bad`` (cannot be judged).
        headline: printed at the top; the others are folded away.
    """

    text: str
    mood: str
    headline: bool = True


@dataclass(frozen=True)
class Report:
    """Everything that is printed.

    Attributes:
        status: first line: exploratory, or the plan.
        badges: further facts a reader must know before anything else.
        sentences, figures: the opening.  verdicts: the claims.
        counts: the checklist in numbers.
    """

    title: str
    status: str
    badges: tuple[str, ...]
    sentences: tuple[Sentence, ...]
    figures: tuple[Figure, ...]
    verdicts: tuple[Verdict, ...]
    counts: dict[str, int]
    sections: tuple[Section, ...]
    checklist: tuple[Item, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    digest: str
    rules: tuple[tuple[str, str, int], ...] = field(default=())
