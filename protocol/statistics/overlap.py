"""Overlap of head sets: half splits of many settings at once, shared and only parts.

Chance and ceiling are those of :mod:`harness_heads.discovery.chance`, which discovery prints with every comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness_heads.discovery.chance import Ceiling, Chance, ceiling_fraction, layer_chance, uniform_chance
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head
from harness_heads.protocol.statistics.intervals import Codes
from harness_heads.protocol.statistics.ranks import Floats

__all__ = [
    "Ceiling",
    "Chance",
    "HalfSplits",
    "Parts",
    "ceiling_fraction",
    "decompose",
    "half_split_overlaps",
    "layer_chance",
    "uniform_chance",
]


class HalfSplits(NamedTuple):
    """Overlaps over half splits: mean and 2.5 / 97.5 percentiles (not a confidence interval: splits share strips)."""

    mean: float
    low: float
    high: float


def half_split_overlaps(
    scores_a: Floats,
    scores_b: Floats,
    k: int,
    splits: int,
    rng: np.random.Generator,
    codes: Codes | None = None,
) -> HalfSplits:
    """Top-k overlap of A on one random half of the strips and B on the other, both ways, averaged.

    Args:
        scores_a, scores_b: per-strip head scores, shape [strips, heads]; pass the same array twice for O_AA.
        k: heads kept.  splits: random half splits.
        codes: cluster number of each strip, so that an image never lies in both halves.
    """
    strips, heads = scores_a.shape
    if scores_b.shape != scores_a.shape:
        raise HarnessHeadsError("half splits: both settings need scores of the same strips and heads")
    if not 1 <= k <= heads or strips < 2 or splits < 1:
        raise HarnessHeadsError(f"half splits: k={k} of {heads} heads, {strips} strips, {splits} splits")
    codes = np.arange(strips) if codes is None else codes
    clusters = int(codes.max()) + 1
    if clusters < 2:
        raise HarnessHeadsError("half splits: all strips share one image; two halves need at least two")
    halves = np.zeros((2, splits, strips))
    for s in range(splits):
        order = rng.permutation(clusters)
        for half, chosen in enumerate((order[: clusters // 2], order[clusters // 2 : 2 * (clusters // 2)])):
            member = np.zeros(clusters)
            member[chosen] = 1
            halves[half, s] = member[codes]
    a = [_top(half, scores_a, k) for half in halves]
    b = a if scores_b is scores_a else [_top(half, scores_b, k) for half in halves]
    out = ((a[0] & b[1]).sum(axis=1) + (a[1] & b[0]).sum(axis=1)) / 2
    low, high = np.quantile(out, [0.025, 0.975])
    return HalfSplits(float(out.mean()), float(low), float(high))


class Parts(NamedTuple):
    """What two sets share and what each has alone, in (layer, head) order."""

    shared: tuple[Head, ...]
    first_only: tuple[Head, ...]
    second_only: tuple[Head, ...]


def decompose(first: Iterable[Head], second: Iterable[Head]) -> Parts:
    """Shared / only parts of two sets (paper A, Table 15).

    The parts differ in size, so compare each with controls of its own size: a small part near zero may be small, not
    different.
    """
    a, b = set(first), set(second)
    return Parts(tuple(sorted(a & b)), tuple(sorted(a - b)), tuple(sorted(b - a)))


def _top(halves: Floats, scores: Floats, k: int) -> NDArray[np.bool_]:
    """The k best heads of each half by their mean score, shape [splits, heads]; ties go to the lower index.

    Args:
        halves: 1 where a strip lies in the half, shape [splits, strips].
        scores: shape [strips, heads].
    """
    # rounding: a product of matrices adds in an order of its own, which must not tell equal heads apart
    means = np.round(halves @ scores / halves.sum(axis=1, keepdims=True), 12)
    last = np.partition(means, -k, axis=1)[:, [-k]]
    above, ties = means > last, means == last
    return np.asarray(above | (ties & (np.cumsum(ties, axis=1) <= k - above.sum(axis=1, keepdims=True))))
