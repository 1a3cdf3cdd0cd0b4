"""Rank correlation of attention mass with a score over control sets (paper A, Table 17)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.statistics.ranks import Floats, check_alpha

MASS_STATISTICS = ("mean", "median", "min", "max", "sd")


class Spearman(NamedTuple):
    """rho and its two-sided p; NaN with fewer than three sets or without spread."""

    rho: float
    p: float
    n: int


def spearman(x: ArrayLike, y: ArrayLike) -> Spearman:
    """Spearman correlation of two score lists, shape [n] each."""
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise HarnessHeadsError(f"Spearman: two lists of one length are needed, not {a.shape} and {b.shape}")
    if a.size < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Spearman(math.nan, math.nan, int(a.size))
    result = stats.spearmanr(a, b)
    return Spearman(float(result.statistic), float(result.pvalue), int(a.size))


def mass_statistics(mass: Floats) -> Mapping[str, Floats]:
    """Mean, median, min, max and SD (ddof 1) over the heads of each set, [sets, heads] -> [sets] each."""
    return {
        "mean": mass.mean(axis=1),
        "median": np.median(mass, axis=1),
        "min": mass.min(axis=1),
        "max": mass.max(axis=1),
        "sd": mass.std(axis=1, ddof=1) if mass.shape[1] > 1 else np.full(mass.shape[0], np.nan),
    }


class Uncorrected(NamedTuple):
    """Of ``tests`` correlations, how many pass ``alpha`` alone, how many chance would, and how many pass Bonferroni."""

    tests: int
    passing: int
    by_chance: float
    passing_bonferroni: int


def uncorrected_count(p: ArrayLike, alpha: float = 0.05) -> Uncorrected:
    """How a table full of uncorrected correlations must be read."""
    check_alpha(alpha)
    values = np.asarray(p, np.float64)
    values = values[~np.isnan(values)]
    m = int(values.size)
    return Uncorrected(m, int((values <= alpha).sum()), alpha * m, int((values <= alpha / m).sum()) if m else 0)


def critical_rho(n: int, alpha: float = 0.05) -> float:
    """|rho| needed for a two-sided ``alpha`` with n sets, by the t approximation."""
    check_alpha(alpha)
    if n < 3:
        return math.nan
    t = float(stats.t.isf(alpha / 2, n - 2))
    return t / math.sqrt(n - 2 + t * t)
