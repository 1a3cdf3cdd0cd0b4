"""What R controls and N items could have shown: smallest detectable effects, so that silence is not read as absence."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.statistics.ranks import check_alpha


class Detectable(NamedTuple):
    """Smallest effect above the control mean that reaches ``power``; infinite, with a reason, where none can."""

    effect: float
    allowed_exceedances: int
    reason: str = ""


def allowed_exceedances(r: int, alpha: float, tests: int = 1) -> int:
    """How many controls may reach the set while ``m p <= alpha`` still holds; -1 where not even the floor does."""
    check_alpha(alpha)
    return math.floor(alpha * (r + 1) / tests + 1e-9) - 1


def rank_power(effect: float, r: int, control_sd: float, set_se: float, alpha: float, tests: int = 1) -> float:
    """P(rank p survives) for a set ``effect`` above normal controls of SD ``control_sd``.

    Args:
        effect: true distance from the control mean.
        r: number of controls.
        control_sd: SD of individual control draws (item noise of their means included).
        set_se: item noise of the set's own mean.
        tests: m of Holm's first step.
    """
    g = allowed_exceedances(r, alpha, tests)
    if g < 0:
        return 0.0
    if control_sd <= 0:
        return 1.0 if effect > 0 else 0.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    at = (effect + set_se * nodes) / control_sd
    return float((stats.binom.cdf(g, r, stats.norm.sf(at)) * weights).sum() / weights.sum())


def detectable_by_rank(
    r: int, control_sd: float, set_se: float, alpha: float = 0.05, tests: int = 1, power: float = 0.8
) -> Detectable:
    """Smallest effect that the rank test would show with probability ``power``."""
    if not 0 < power < 1:
        raise HarnessHeadsError(f"power={power} must lie between 0 and 1")
    g = allowed_exceedances(r, alpha, tests)
    if g < 0:
        return Detectable(math.inf, g, f"floor x m = {tests / (r + 1):.3g} is above alpha = {alpha:g}")
    if not (control_sd >= 0 and set_se >= 0):
        return Detectable(math.nan, g, "the spread of the controls is unknown")
    top = 40.0 * (control_sd + set_se) or 1.0
    if control_sd == 0:
        return Detectable(0.0, g, "controls do not vary")
    solve = optimize.brentq(lambda e: rank_power(e, r, control_sd, set_se, alpha, tests) - power, -top, top)
    return Detectable(float(solve), g)


def detectable_by_items(n: int, item_sd: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest mean that a two-sided t test over N items shows with probability ``power`` (noncentral t)."""
    check_alpha(alpha)
    if n < 2 or not item_sd > 0:
        return math.nan
    df, cut = n - 1, float(stats.t.isf(alpha / 2, n - 1))
    ncp = optimize.brentq(lambda d: stats.nct.sf(cut, df, d) - power, 0.0, cut + 12.0)
    return float(ncp) * item_sd / math.sqrt(n)
