"""Two settings on the same items: paired t, Wilcoxon, sign flips; and equivalence against a margin (TOST).

All are conditional on the head sets at hand: they generalise over items, not over head sets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.statistics.intervals import Codes, cluster_sums, t_interval
from harness_heads.protocol.statistics.ranks import Floats, Tail, floor, rank_p

SCOPE = "over items, for these head sets; it does not generalise to other head sets of the same settings"


class PairedT(NamedTuple):
    """Mean item difference, its 95 % interval, t, df and p; ``reason`` where p is NaN."""

    difference: float
    low: float
    high: float
    t: float
    df: int
    p: float
    reason: str = ""


def paired_t(differences: ArrayLike, codes: Codes | None = None, tail: Tail = "two-sided") -> PairedT:
    """One-sample t of item differences, shape [N]; cluster-robust where items share clusters."""
    estimate = t_interval(differences, codes)
    mean, se = float(estimate.mean), float(estimate.se)
    low, high = float(estimate.low), float(estimate.high)
    if estimate.reason or not se > 0:
        return PairedT(mean, low, high, math.nan, estimate.df, math.nan, estimate.reason or "no spread over items")
    t = mean / se
    if tail == "two-sided":
        p = 2 * stats.t.sf(abs(t), estimate.df)
    else:
        p = stats.t.sf(t if tail == "upper" else -t, estimate.df)
    return PairedT(mean, low, high, t, estimate.df, float(p))


def t_from_p(p: float, df: int) -> float:
    """The |t| whose two-sided p this is: turns a printed p back into the standard error it came from."""
    return float(stats.t.isf(p / 2, df))


def wilcoxon_p(differences: ArrayLike) -> float:
    """Two-sided Wilcoxon signed-rank p, zero differences split over both sides (Pratt); NaN if all are zero."""
    d = np.asarray(differences, np.float64)
    if d.size == 0 or not np.any(d):
        return math.nan
    return float(stats.wilcoxon(d, zero_method="pratt", method="approx" if d.size > 50 else "auto").pvalue)


class SignFlip(NamedTuple):
    """Sign-flip p (two-sided) and the floor ``1 / (B + 1)`` that B flips put under it."""

    p: float
    floor: float


def sign_flip(
    differences: ArrayLike, rng: np.random.Generator, flips: int = 10_000, codes: Codes | None = None
) -> SignFlip:
    """Permutation test of symmetric differences around zero; a cluster flips as one."""
    if flips < 1:
        raise HarnessHeadsError(f"sign flips: flips={flips} must be at least 1")
    d = np.asarray(differences, np.float64)
    if d.size == 0:
        return SignFlip(math.nan, floor(flips))
    sums = d if codes is None else cluster_sums(d[:, None], codes, int(codes.max()) + 1)[:, 0]
    # one random bit a cluster and flip; signs are 2 bit - 1
    bits = rng.integers(0, 256, size=(flips, -(-sums.size // 8)), dtype=np.uint8)
    kept = np.unpackbits(bits, axis=1, count=sums.size).astype(np.float64) @ sums
    tolerance = 1e-12 * float(np.abs(sums).sum() or 1.0)
    p = rank_p(abs(sums.sum()), np.abs(2.0 * kept - sums.sum()), tolerance=tolerance)
    return SignFlip(float(p), floor(flips))


class Equivalence(NamedTuple):
    """TOST: p of the larger one-sided test and the 90 % interval that must lie inside the margin at level .05."""

    p: float
    low: float
    high: float
    reason: str = ""


def equivalence(mean: float, se: float, df: int, margin: float, alpha: float = 0.05) -> Equivalence:
    """Two one-sided t tests (Schuirmann 1987): is ``mean`` inside (-margin, margin)?

    A large p of a difference test is no evidence of absence; this is.
    """
    if not margin > 0:
        raise HarnessHeadsError(f"equivalence: margin={margin} must be above 0")
    if math.isnan(mean) or not se >= 0 or df < 1:
        return Equivalence(math.nan, math.nan, math.nan, "no standard error")
    half = float(stats.t.ppf(1 - alpha, df)) * se
    if se == 0:
        return Equivalence(0.0 if abs(mean) < margin else 1.0, mean, mean)
    p = max(stats.t.sf((mean + margin) / se, df), stats.t.cdf((mean - margin) / se, df))
    return Equivalence(float(p), mean - half, mean + half)


def set_level_floor(first: int, second: int) -> float:
    """Smallest one-sided permutation p when the *head sets* are the units: ``1 / C(first + second, first)``."""
    if first < 1 or second < 1:
        raise HarnessHeadsError(f"set-level floor: {first} and {second} sets; both groups need at least one")
    return 1.0 / math.comb(first + second, first)


def group_difference(first: Floats, second: Floats) -> Floats:
    """Item differences of two groups of settings, each group averaged: [N, a], [N, b] -> [N]."""
    return np.asarray(first.mean(axis=1) - second.mean(axis=1))
