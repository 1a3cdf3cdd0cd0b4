"""Intervals over items: t, percentile and BCa bootstrap, with nested items (clusters) resampled whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.statistics.ranks import Floats

Codes = NDArray[np.intp]


class Estimate(NamedTuple):
    """Mean of item scores with its t interval; arrays of one shape, one entry a column.

    ``reason`` says why the interval is NaN, and is empty where it is not.
    """

    mean: Floats
    sd: Floats
    se: Floats
    low: Floats
    high: Floats
    df: int
    reason: str = ""


class Bounds(NamedTuple):
    """Lower and upper end of an interval."""

    low: Floats
    high: Floats


def cluster_codes(labels: Sequence[object]) -> Codes:
    """0-based cluster number of every item, in order of first appearance."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(label, len(seen)) for label in labels], dtype=np.intp)


def t_interval(values: ArrayLike, codes: Codes | None = None, level: float = 0.95) -> Estimate:
    """``mean +- t_{C-1} se``: the textbook interval, and its cluster-robust form when items share clusters.

    With every item its own cluster, ``se`` is exactly ``sd / sqrt(N)``.

    Args:
        values: item scores, shape [N] or [N, columns].
        codes: cluster number of each item, shape [N]; ``None`` where every item stands alone.
        level: coverage, in (0, 1).
    """
    check_level(level)
    y = np.asarray(values, np.float64)
    flat = y.ndim == 1
    y = y[:, None] if flat else y
    n = y.shape[0]
    codes = np.arange(n) if codes is None else codes
    clusters = int(codes.max()) + 1 if n else 0
    blank = np.full(y.shape[1], np.nan)
    mean = y.mean(axis=0) if n else blank
    sd = y.std(axis=0, ddof=1) if n > 1 else blank
    if clusters < 2:
        what = "no item" if n == 0 else "one item" if n == 1 else "all items share one cluster"
        return _shape(Estimate(mean, sd, blank, blank, blank, 0, what), flat)
    residual = cluster_sums(y - mean, codes, clusters)
    se = np.sqrt(clusters / (clusters - 1) * (residual**2).sum(axis=0)) / n
    half = stats.t.ppf(0.5 + level / 2, clusters - 1) * se
    return _shape(Estimate(mean, sd, se, mean - half, mean + half, clusters - 1), flat)


def cluster_sums(values: Floats, codes: Codes, clusters: int) -> Floats:
    """Column sums of every cluster, shape [clusters, columns]."""
    out = np.zeros((clusters, values.shape[1]))
    np.add.at(out, codes, values)
    return out


def resample_weights(units: int, resamples: int, rng: np.random.Generator) -> Floats:
    """How often each of ``units`` is drawn in each bootstrap resample: shape [resamples, units], rows sum to units."""
    if units < 1 or resamples < 1:
        raise HarnessHeadsError(f"bootstrap: {units} units and {resamples} resamples; both must be at least 1")
    drawn = rng.integers(0, units, size=(resamples, units))
    drawn += np.arange(resamples)[:, None] * units
    return np.bincount(drawn.ravel(), minlength=resamples * units).reshape(resamples, units).astype(np.float64)


def bootstrap_means(values: Floats, codes: Codes, weights: Floats) -> Floats:
    """Means of resampled items, clusters kept whole; all arms and sets of an item travel together.

    Args:
        values: shape [N, columns].
        codes: cluster numbers, shape [N].
        weights: :func:`resample_weights` over the clusters, shape [B, C].

    Returns:
        shape [B, columns].
    """
    clusters = weights.shape[1]
    if clusters == values.shape[0]:
        # every item its own cluster (codes may be any order): all resamples have N items
        ordered = np.empty_like(values)
        ordered[codes] = values
        return np.asarray(weights @ ordered / clusters)
    sums = cluster_sums(values, codes, clusters)
    sizes = np.bincount(codes, minlength=clusters).astype(np.float64)
    return np.asarray(weights @ sums / (weights @ sizes)[:, None])


def percentile_bounds(resampled: Floats, level: float = 0.95) -> Bounds:
    """Percentile interval of bootstrap values, shape [B, columns] -> [columns]."""
    check_level(level)
    low, high = np.quantile(resampled, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    return Bounds(np.asarray(low), np.asarray(high))


def bca_bounds(values: Floats, codes: Codes, resampled: Floats, level: float = 0.95) -> Bounds:
    """Bias-corrected and accelerated interval of a mean (Efron 1987); clusters are the jackknife's units.

    NaN where the resamples do not vary: there is nothing to correct.

    Args:
        values: item scores, shape [N, columns].
        codes: cluster numbers, shape [N].
        resampled: bootstrap means of the same columns, shape [B, columns].
    """
    check_level(level)
    n, clusters = values.shape[0], int(codes.max()) + 1
    mean = values.mean(axis=0)
    sums = cluster_sums(values, codes, clusters)
    sizes = np.bincount(codes, minlength=clusters)[:, None]
    if clusters < 3 or (n == sizes).any():
        return Bounds(np.full(mean.shape, np.nan), np.full(mean.shape, np.nan))
    left_out = (values.sum(axis=0) - sums) / (n - sizes)
    lean = left_out.mean(axis=0) - left_out
    # float noise of a constant is no spread
    lean = np.where(np.abs(lean) > 1e-12 * np.maximum(1.0, np.abs(mean)), lean, 0.0)
    spread = (lean**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        acceleration = (lean**3).sum(axis=0) / (6 * spread**1.5)
        # ties with the estimate count half, so that a symmetric lattice of means has no bias
        below = ((resampled < mean).mean(axis=0) + (resampled <= mean).mean(axis=0)) / 2
        shift = stats.norm.ppf(below)
        ends = []
        for q in (0.5 - level / 2, 0.5 + level / 2):
            z = stats.norm.ppf(q)
            ends.append(stats.norm.cdf(shift + (shift + z) / (1 - acceleration * (shift + z))))
    out = np.full((2, mean.size), np.nan)
    for column in np.flatnonzero(np.isfinite(ends[0]) & np.isfinite(ends[1])):
        out[:, column] = np.quantile(resampled[:, column], [ends[0][column], ends[1][column]])
    return Bounds(out[0], out[1])


def check_level(level: float) -> None:
    """Raise unless ``level`` is a coverage."""
    if not 0 < level < 1:
        raise HarnessHeadsError(f"level={level} is no coverage; it must lie between 0 and 1")


def _shape(estimate: Estimate, flat: bool) -> Estimate:
    """Drop the column axis again for one-dimensional input."""
    if not flat:
        return estimate
    mean, sd, se, low, high = (np.asarray(v[0]) for v in estimate[:5])
    return Estimate(mean, sd, se, low, high, estimate.df, estimate.reason)
