"""Overlap of head sets: chance level, split-half ceiling, shared and only parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head
from harness_heads.protocol.statistics.intervals import Codes
from harness_heads.protocol.statistics.ranks import Floats


class Chance(NamedTuple):
    """Overlap expected of two unrelated sets: mean, SD and the central 95 % (whole heads)."""

    mean: float
    sd: float
    low: int
    high: int


def uniform_chance(size_a: int, size_b: int, total: int) -> Chance:
    """Two uniform draws of ``size_a`` and ``size_b`` among ``total`` heads (hypergeometric)."""
    if not (0 <= size_a <= total and 0 <= size_b <= total and total >= 1):
        raise HarnessHeadsError(f"chance overlap: sizes {size_a} and {size_b} do not fit {total} heads")
    law = stats.hypergeom(total, size_a, size_b)
    return Chance(float(law.mean()), float(law.std()), int(law.ppf(0.025)), int(law.ppf(0.975)))


def layer_chance(per_layer_a: Sequence[int], per_layer_b: Sequence[int], heads: Sequence[int]) -> Chance:
    """The same with both layer profiles kept: each layer is a hypergeometric of its own, convolved exactly."""
    if not len(per_layer_a) == len(per_layer_b) == len(heads):
        raise HarnessHeadsError("chance overlap: profiles and geometry must have one entry per layer")
    law = np.ones(1)
    mean = variance = 0.0
    for layer, (a, b, h) in enumerate(zip(per_layer_a, per_layer_b, heads, strict=True)):
        if not (0 <= a <= h and 0 <= b <= h):
            raise HarnessHeadsError(f"chance overlap: layer {layer} has {h} heads, the sets name {a} and {b}")
        if a and b:
            law = np.convolve(law, _hypergeometric(h, int(a), int(b)))
            mean += a * b / h
            variance += a * b * (h - a) * (h - b) / (h * h * (h - 1)) if h > 1 else 0.0
    below = np.cumsum(law)
    return Chance(
        mean, math.sqrt(variance), int(np.searchsorted(below, 0.025)), int(np.searchsorted(below, 0.975 - 1e-12))
    )


def _hypergeometric(total: int, a: int, b: int) -> Floats:
    """P(0), P(1), ... of the heads that two draws share."""
    shared = range(min(a, b) + 1)
    return np.array([math.comb(a, x) * math.comb(total - a, b - x) / math.comb(total, b) for x in shared])


class Ceiling(NamedTuple):
    """Overlap, the split-half ceiling and the overlap as a fraction of it; ``corrected`` takes chance off both."""

    overlap: float
    ceiling: float
    fraction: float
    corrected: float


def ceiling_fraction(overlap: float, self_a: float, self_b: float, chance: float = 0.0) -> Ceiling:
    """``C = sqrt(O_AA O_BB)``, the attenuation formula on overlaps (paper A, Tables 1 and 20).

    All three overlaps must come from halves of the same size: C bounds the overlap at that size, so an overlap of sets
    found on the full data must not be divided by it.

    Args:
        overlap: mean shared heads of setting A on one half and B on the other.
        self_a, self_b: mean shared heads of each setting's own two halves.
        chance: shared heads expected by chance.
    """
    if self_a < 0 or self_b < 0:
        raise HarnessHeadsError("split-half ceiling: overlaps cannot be negative")
    top = math.sqrt(self_a * self_b)
    fraction = overlap / top if top > 0 else math.nan
    corrected = (overlap - chance) / (top - chance) if top > chance else math.nan
    return Ceiling(overlap, top, fraction, corrected)


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
