"""What overlap of head sets is worth: chance, and the ceiling that noise in discovery sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from harness_heads.errors import HarnessHeadsError


class Chance(NamedTuple):
    """Overlap expected of two unrelated sets: mean, SD and the central 95 % (whole heads)."""

    mean: float
    sd: float
    low: int
    high: int


def uniform_chance(size_a: int, size_b: int, total: int) -> Chance:
    """Two uniform draws of ``size_a`` and ``size_b`` among ``total`` heads (hypergeometric).

    Raises:
        HarnessHeadsError: a set that does not fit the model.
    """
    for size in (size_a, size_b):
        if not 0 <= size <= total or total < 1:
            raise HarnessHeadsError(f"chance overlap: a set of {size} heads does not fit a model of {total}")
    return layer_chance([size_a], [size_b], [total])


def layer_chance(per_layer_a: Sequence[int], per_layer_b: Sequence[int], heads: Sequence[int]) -> Chance:
    """Both layer profiles kept: each layer is a hypergeometric of its own; their convolution is exact.

    Args:
        per_layer_a, per_layer_b: heads of each set in each layer.  heads: heads that each layer has.

    Raises:
        HarnessHeadsError: profiles of different length, or a layer with fewer heads than a set names.
    """
    if not len(per_layer_a) == len(per_layer_b) == len(heads):
        raise HarnessHeadsError("chance overlap: profiles and geometry must have one entry per layer")
    law: NDArray[np.float64] = np.ones(1)
    mean = variance = 0.0
    for layer, (a, b, h) in enumerate(zip(per_layer_a, per_layer_b, heads, strict=True)):
        if not (0 <= a <= h and 0 <= b <= h):
            raise HarnessHeadsError(f"chance overlap: layer {layer} has {h} heads, the sets name {a} and {b}")
        if a and b:
            here = stats.hypergeom(h, a, b)
            law = np.convolve(law, here.pmf(np.arange(min(a, b) + 1)))
            mean += a * b / h
            variance += a * b * (h - a) * (h - b) / (h * h * (h - 1)) if h > 1 else 0.0
    below = np.cumsum(law)
    # a probability of exactly .025 counts as reached, whatever rounding does to the sum
    low, high = (int(np.searchsorted(below, share - 1e-12)) for share in (0.025, 0.975))
    return Chance(mean, math.sqrt(variance), low, high)


class Ceiling(NamedTuple):
    """Overlap, the split-half ceiling and the overlap as a fraction of it; ``corrected`` takes chance off both."""

    overlap: float
    ceiling: float
    fraction: float
    corrected: float


def ceiling_fraction(overlap: float, self_a: float, self_b: float, chance: float = 0.0) -> Ceiling:
    """``C = sqrt(O_AA O_BB)``, the attenuation formula on overlaps (paper A, Tables 1 and 20).

    All three overlaps must come from halves of the same size: C bounds the overlap at that size, so an overlap of sets
    found on the full data must not be divided by it. Undefined fractions are NaN.

    Args:
        overlap: mean shared heads of setting A on one half and B on the other.
        self_a, self_b: mean shared heads of each setting's own two halves.
        chance: shared heads expected by chance.

    Raises:
        HarnessHeadsError: a negative overlap.
    """
    if self_a < 0 or self_b < 0:
        raise HarnessHeadsError("split-half ceiling: overlaps cannot be negative")
    top = math.sqrt(self_a * self_b)
    fraction = overlap / top if top > 0 else math.nan
    corrected = (overlap - chance) / (top - chance) if top > chance else math.nan
    return Ceiling(overlap, top, fraction, corrected)
