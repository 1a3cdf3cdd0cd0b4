"""Pure scores of one item: P(c), drops, NCS and its variants, NCS on grids, CERS.

Each score exists in two readings of P: as it is over the whole vocabulary, and renormalised over the options
(paper A's Tables 3 and 11 differ in exactly that). Functions take log-probabilities and return plain floats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Reading = Literal["raw", "renorm"]
READINGS: tuple[Reading, ...] = ("raw", "renorm")


def probability(logprobs: Mapping[str, float], option: str, reading: Reading = "raw") -> float:
    """P(option): ``exp`` of its log-probability, or its share of all options' mass (``renorm``); in [0, 1].

    NaN where every option has probability 0 and a share is asked for.
    """
    if reading == "raw":
        return math.exp(logprobs[option])
    top = max(logprobs.values())
    if top == -math.inf or math.isnan(top):
        return math.nan
    total = math.fsum(math.exp(v - top) for v in logprobs.values())
    return math.exp(logprobs[option] - top) / total


def log_odds(logprobs: Mapping[str, float], option: str, reading: Reading = "renorm") -> float:
    """log P(c) / (1 - P(c)); renormalised it is the log-ratio to the other options' total."""
    if reading == "renorm":
        rest = [v for k, v in logprobs.items() if k != option]
        top = max(rest)
        return logprobs[option] - (top + math.log(math.fsum(math.exp(v - top) for v in rest)))
    p = probability(logprobs, option, "raw")
    return math.log(p) - math.log1p(-p) if 0 < p < 1 else math.copysign(math.inf, p - 0.5)


@dataclass(frozen=True)
class Necessity:
    """Necessity of one set on one item (definitions: paper A, NCS; Table 12 for v2).

    Attributes:
        drop_matched, drop_mismatched: baseline P(c) minus P(c) with the set blind to the image.
        ncs: drop_matched - drop_mismatched.
        ncs_v2: drop_matched minus the drop on the text-solvable arm (NaN without that arm). Reconstruction.
    """

    drop_matched: float
    drop_mismatched: float
    drop_text: float = math.nan

    @property
    def ncs(self) -> float:
        return self.drop_matched - self.drop_mismatched

    @property
    def ncs_v2(self) -> float:
        return self.drop_matched - self.drop_text


def drop(
    baseline: Mapping[str, float], intervened: Mapping[str, float], option: str, reading: Reading = "raw"
) -> float:
    """P(option) without the intervention minus P(option) under it; in [-1, 1]."""
    return probability(baseline, option, reading) - probability(intervened, option, reading)


def contrast(
    positive: Mapping[str, float], negative: Mapping[str, float], option: str, reading: Reading = "raw"
) -> float:
    """P(option | positive) - P(option | negative).

    CERS (paper A, Eq. 3): positive = steered onto the answer's cell, negative = onto the distractor's.
    NCS_grid (Eq. 4): positive = another cell hidden, negative = the answer's cell hidden.
    """
    return probability(positive, option, reading) - probability(negative, option, reading)


def symmetric_contrast(
    to_correct: Mapping[str, float],
    to_distractor: Mapping[str, float],
    correct: str,
    distractor: str,
    reading: Reading = "raw",
) -> float:
    """Symmetric CERS (paper A, Table 16; reconstruction): mean of the contrast of c and the reversed contrast of d."""
    return 0.5 * (
        contrast(to_correct, to_distractor, correct, reading) + contrast(to_distractor, to_correct, distractor, reading)
    )
