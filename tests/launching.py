"""Types and arguments that tests of the launcher share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TINY = "pretrained=tiny-digits,head_set=tiny-digits/dg-ref-qsp"


@dataclass(frozen=True)
class Outcome:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str

    @property
    def error_lines(self) -> list[str]:
        """Lines of the launcher's own errors."""
        return [line for line in self.err.splitlines() if line.startswith("lmms_eval: error:")]


Launch = Callable[..., Outcome]
