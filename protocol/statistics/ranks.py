"""Rank p of a set among its individual control sets, the floor that R controls put under it, and sequential rules.

H0: the set is one more draw from the family of its controls. Then the rank p is valid whatever the scores look like,
as long as set and controls were measured on the same items (Davison & Hinkley 1997; Phipson & Smyth 2010).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness_heads.errors import HarnessHeadsError

Floats = NDArray[np.float64]
Tail = Literal["upper", "lower", "two-sided"]
TAILS: tuple[Tail, ...] = ("upper", "lower", "two-sided")

TOLERANCE = 1e-6
"""Scores this close count as tied: float noise between batches must not break ties for one side."""


def rank_p(value: ArrayLike, controls: ArrayLike, tail: Tail = "upper", tolerance: float = TOLERANCE) -> Floats:
    """``(1 + #{r: Y_r >= Y_S}) / (R + 1)``; ties count against the set, and p is never 0.

    Args:
        value: scores of sets, shape [...].
        controls: scores of their control sets, shape [..., R].
        tail: ``upper`` asks whether the set is unusually high; ``two-sided`` is twice the smaller tail, at most 1.
        tolerance: scores closer than this are ties.

    Returns:
        p, shape [...]; NaN where R is 0 or a score is NaN.
    """
    _check_tail(tail)
    if not tolerance >= 0:
        raise HarnessHeadsError(f"rank p: tolerance={tolerance} must be 0 or more")
    y, null = np.asarray(value, np.float64), np.asarray(controls, np.float64)
    r = null.shape[-1]
    if r == 0:
        return np.full(y.shape, np.nan)
    if tail == "two-sided":
        both = np.minimum(rank_p(y, null, "upper", tolerance), rank_p(y, null, "lower", tolerance))
        return np.asarray(np.minimum(1.0, 2.0 * both))
    if tail == "upper":
        exceed = (null >= y[..., None] - tolerance).sum(-1)
    else:
        exceed = (null <= y[..., None] + tolerance).sum(-1)
    broken = np.isnan(y) | np.isnan(null).any(-1)
    return np.asarray(np.where(broken, np.nan, (1.0 + exceed) / (r + 1.0)))


def floor(r: int, tests: int = 1) -> float:
    """Smallest p that R controls can give, ``m / (R + 1)`` after Holm over ``m`` tests (at most 1); NaN for R = 0."""
    if r < 0 or tests < 1:
        raise HarnessHeadsError(f"floor: R={r} must be 0 or more and m={tests} at least 1")
    return min(1.0, tests / (r + 1)) if r else math.nan


def minimum_controls(alpha: float, tests: int = 1, exceedances: int = 0) -> int:
    """Smallest R whose floor, after Holm over ``tests``, is at most ``alpha``.

    With ``exceedances`` = 1 a single control above the set does not kill the result: ``2 m / (R + 1) <= alpha``.
    """
    check_alpha(alpha)
    if tests < 1 or exceedances < 0:
        raise HarnessHeadsError(f"minimum R: m={tests} must be at least 1 and exceedances={exceedances} 0 or more")
    # 12 / .05 is 240.00000000000003 in floats; the slack keeps the whole number
    return math.ceil(tests * (1 + exceedances) / alpha - 1e-9) - 1


class Sequential(NamedTuple):
    """A sequential Monte Carlo p: its value, how many draws were used, and how many of them reached the set."""

    p: float
    draws: int
    exceedances: int


def sequential_p(value: float, controls: ArrayLike, stop_after: int, tolerance: float = TOLERANCE) -> Sequential:
    """Besag & Clifford (1991): draw until ``stop_after`` controls reach the set, or the draws run out.

    p = h / l when the h-th exceedance falls on draw l, else (g + 1) / (n + 1) with g exceedances among all n draws.

    Args:
        value: score of the set.
        controls: control scores in the order they were drawn, shape [n_max].
        stop_after: h.
    """
    if stop_after < 1:
        raise HarnessHeadsError(f"sequential p: stop_after={stop_after} must be at least 1")
    null = np.asarray(controls, np.float64)
    if null.size == 0 or math.isnan(value) or np.isnan(null).any():
        return Sequential(math.nan, 0, 0)
    reached = np.cumsum(null >= value - tolerance)
    if reached[-1] >= stop_after:
        draws = int(np.searchsorted(reached, stop_after)) + 1
        return Sequential(stop_after / draws, draws, stop_after)
    return Sequential((int(reached[-1]) + 1) / (null.size + 1), int(null.size), int(reached[-1]))


def two_stage_p(value: float, controls: ArrayLike, first: int = 20, tolerance: float = TOLERANCE) -> Sequential:
    """The rule "``first`` draws; all of them if none exceeds", which has to be fixed before looking.

    It is sequential sampling stopped after the first batch that holds an exceedance. The first draws stay in, so P(p <=
    x) stays at or below x at every value that can be printed; R chosen by looking, without this rule, has no such
    guarantee.
    """
    null = np.asarray(controls, np.float64)
    if not 1 <= first <= null.size:
        raise HarnessHeadsError(f"two-stage p: the first stage of {first} draws must lie in 1..{null.size}")
    if math.isnan(value) or np.isnan(null).any():
        return Sequential(math.nan, 0, 0)
    reached = null >= value - tolerance
    used = first if reached[:first].any() else null.size
    hits = int(reached[:used].sum())
    return Sequential((1 + hits) / (used + 1), int(used), hits)


def check_alpha(alpha: float) -> None:
    """Raise unless ``alpha`` is a level."""
    if not 0 < alpha < 1:
        raise HarnessHeadsError(f"alpha={alpha} is no level; it must lie between 0 and 1")


def _check_tail(tail: str) -> None:
    if tail not in TAILS:
        raise HarnessHeadsError(f"unknown tail {tail!r} (known: {', '.join(TAILS)})")
