"""Several tests at once: Holm's step-down on p, and max-T (Westfall & Young 1993) on the scores themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.statistics.ranks import TOLERANCE, Floats


def holm(p: ArrayLike, tests: int | None = None) -> Floats:
    """Holm (1979) adjusted p, ``adj_(j) = max_{i<=j} min(1, (m - i + 1) p_(i))``; valid under any dependence.

    Args:
        p: shape [n]; NaN (not estimable) stays NaN and is not counted unless ``tests`` counts it.
        tests: m, when more tests were made than are listed; the unlisted ones are taken to have larger p.
    """
    values = np.asarray(p, np.float64)
    if values.ndim != 1:
        raise HarnessHeadsError(f"Holm: p must be a list of numbers, its shape is {values.shape}")
    known = np.flatnonzero(~np.isnan(values))
    m = known.size if tests is None else tests
    if m < known.size:
        raise HarnessHeadsError(f"Holm: {known.size} p values were given for m={m} tests; m counts every test made")
    if ((values[known] < 0) | (values[known] > 1)).any():
        raise HarnessHeadsError("Holm: every p must lie in [0, 1]")
    order = known[np.argsort(values[known], kind="stable")]
    factors = m - np.arange(order.size)
    adjusted = np.full(values.shape, np.nan)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * values[order]))
    return adjusted


def max_t(values: ArrayLike, controls: ArrayLike, tolerance: float = TOLERANCE) -> Floats:
    """Step-down max-T adjusted p: no factor m in the floor, exact under the complete null.

    Each test's set and its R controls are standardised together; draw r is shared by all tests. The p of a set is the
    rank of its z among the draws' maxima over the tests that are still open. Strong control needs subset pivotality,
    so this stands beside Holm and not in its place.

    Args:
        values: scores of the sets, shape [m].
        controls: their control scores, shape [m, R], column r being the r-th draw of every set.
    """
    y, null = np.asarray(values, np.float64), np.asarray(controls, np.float64)
    if null.ndim != 2 or y.shape != null.shape[:1]:
        raise HarnessHeadsError(f"max-T: {y.shape} sets need controls of shape [m, R], not {null.shape}")
    m, r = null.shape
    if r == 0 or np.isnan(y).any() or np.isnan(null).any():
        return np.full(m, np.nan)
    together = np.concatenate([y[:, None], null], axis=1)
    spread = together.std(axis=1, ddof=1, keepdims=True)
    # a test whose set and controls all agree has nothing to say: z = 0 for everybody, p = 1
    z = np.where(spread > tolerance, (together - together.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-300), 0)
    order = np.argsort(-z[:, 0], kind="stable")
    open_maxima = np.maximum.accumulate(z[order][::-1, 1:], axis=0)[::-1]
    raw = (1.0 + (open_maxima >= z[order, 0][:, None] - tolerance).sum(axis=1)) / (r + 1.0)
    adjusted = np.empty(m)
    adjusted[order] = np.maximum.accumulate(raw)
    return adjusted
