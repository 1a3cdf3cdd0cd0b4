"""The one exception type that a user is meant to read."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HarnessHeadsError(ValueError):
    """A clear, single-line error that names the offending item and the fix.

    The command line prints its message without a traceback and exits non-zero.
    """


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or ``""`` when none is close."""
    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
