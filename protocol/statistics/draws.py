"""Items crossed with control draws: spread of draws, z, Crawford-Howell t, crossed bootstrap, rank stability.

Every item meets every control set, so a score table has two random factors. Two questions, two answers: how far the
set lies above the *mean* of its control population on new items (crossed bootstrap), and whether it is an unusual *set*
(rank p, Crawford-Howell).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.statistics.intervals import (
    Bounds,
    Codes,
    bootstrap_means,
    percentile_bounds,
    resample_weights,
)
from harness_heads.protocol.statistics.ranks import Floats, rank_p


class Spread(NamedTuple):
    """Individual control draws: mean, SD (ddof 1), and where the set lies among them.

    Attributes:
        z: (set - mean) / SD, descriptive.
        t, p: Crawford & Howell (1998), one-sided upper, df R - 1; needs normal controls, has no floor.
    """

    mean: Floats
    sd: Floats
    z: Floats
    t: Floats
    p: Floats


def control_spread(value: ArrayLike, controls: ArrayLike) -> Spread:
    """Place sets among their individual control draws; NaN with fewer than two draws or no spread.

    Args:
        value: shape [...].
        controls: shape [..., R].
    """
    y, null = np.asarray(value, np.float64), np.asarray(controls, np.float64)
    r = null.shape[-1]
    blank = np.full(y.shape, np.nan)
    if r == 0:
        return Spread(blank, blank, blank, blank, blank)
    mean = null.mean(axis=-1)
    if r == 1:
        return Spread(mean, blank, blank, blank, blank)
    sd = null.std(axis=-1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(sd > 0, (y - mean) / sd, np.nan)
    t = z / np.sqrt(1 + 1 / r)
    return Spread(mean, sd, np.asarray(z), np.asarray(t), np.asarray(stats.t.sf(t, r - 1)))


class Components(NamedTuple):
    """Variance of control scores: ``draw`` between sets (may be 0 after truncation), ``residual`` item by set."""

    draw: float
    residual: float


def variance_components(controls: Floats) -> Components:
    """``s_b^2 = (MS_draw - MS_residual) / N`` of a two-way table without replication, shape [N, R].

    The SD over draw means estimates sqrt(s_b^2 + s_e^2 / N): part of the controls' spread is item noise.
    """
    n, r = controls.shape
    if n < 2 or r < 2:
        return Components(float("nan"), float("nan"))
    grand, rows, columns = controls.mean(), controls.mean(axis=1), controls.mean(axis=0)
    residual = controls - rows[:, None] - columns[None, :] + grand
    ms_residual = float((residual**2).sum() / ((n - 1) * (r - 1)))
    ms_draw = float(n * ((columns - grand) ** 2).sum() / (r - 1))
    return Components(max(0.0, (ms_draw - ms_residual) / n), ms_residual)


class Crossed(NamedTuple):
    """Set minus control population: the estimate and its bootstrap interval over items *and* draws."""

    difference: float
    low: float
    high: float


def crossed_interval(
    set_values: Floats,
    control_values: Floats,
    codes: Codes,
    item_weights: Floats,
    draw_weights: Floats,
    level: float = 0.95,
) -> Crossed:
    """Pigeonhole bootstrap (Owen 2007): rows and columns resampled independently, mildly conservative.

    Resampling items alone treats the R draws as the whole population of control sets and covers far too little.

    Args:
        set_values: item scores of the set, shape [N].
        control_values: item scores of its controls, shape [N, R].
        codes: cluster numbers, shape [N].
        item_weights, draw_weights: :func:`resample_weights` over clusters and over draws, shapes [B, C] and [B, R].
    """
    if item_weights.shape[0] != draw_weights.shape[0]:
        raise HarnessHeadsError("crossed bootstrap: items and draws need the same number of resamples")
    r = control_values.shape[1]
    both = bootstrap_means(np.column_stack([set_values, control_values]), codes, item_weights)
    return crossed_from_means(float(set_values.mean() - control_values.mean()), both, draw_weights / r, level)


def crossed_from_means(difference: float, means: Floats, draw_shares: Floats, level: float = 0.95) -> Crossed:
    """The same from item-resampled means of set and controls, shape [B, 1 + R], and draw shares, shape [B, R]."""
    resampled = means[:, 0] - np.einsum("br,br->b", means[:, 1:], draw_shares)
    bounds = percentile_bounds(resampled[:, None], level)
    return Crossed(difference, float(bounds.low[0]), float(bounds.high[0]))


class Stability(NamedTuple):
    """Rank p over item resamples: median and the central 90 %."""

    median: float
    low: float
    high: float


def rank_stability(means: Floats) -> Stability:
    """How much the rank p moves with the items: recomputed in every item resample.

    Args:
        means: bootstrap means of the set (column 0) and its controls, shape [B, 1 + R].
    """
    if means.shape[1] < 2:
        return Stability(float("nan"), float("nan"), float("nan"))
    low, middle, high = np.quantile(rank_p(means[:, 0], means[:, 1:]), [0.05, 0.5, 0.95], method="inverted_cdf")
    return Stability(float(middle), float(low), float(high))


def prediction_band(controls: ArrayLike, level: float = 0.95) -> Bounds:
    """Where one fresh control set is expected: ``mean +- t_{R-1} SD sqrt(1 + 1/R)``, shape [..., R] -> [...].

    Much wider than the interval of the controls' mean, which a fresh control leaves two times out of three at R = 20.
    """
    null = np.asarray(controls, np.float64)
    r = null.shape[-1]
    if r < 2:
        return Bounds(np.full(null.shape[:-1], np.nan), np.full(null.shape[:-1], np.nan))
    half = stats.t.ppf(0.5 + level / 2, r - 1) * null.std(axis=-1, ddof=1) * np.sqrt(1 + 1 / r)
    return Bounds(np.asarray(null.mean(axis=-1) - half), np.asarray(null.mean(axis=-1) + half))


def crossed_weights(clusters: int, draws: int, resamples: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Independent resampling weights of items' clusters [B, C] and of draws [B, R]."""
    return resample_weights(clusters, resamples, rng), resample_weights(draws, resamples, rng)
