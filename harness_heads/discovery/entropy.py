"""Localization heads' two criteria: image mass above the elbow, and compact attention (low spatial entropy)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

MASS_FLOOR = 0.001  # components lighter than this are dropped (public code of localization heads)


def spatial_entropy(grid: NDArray[np.float64]) -> float:
    """Entropy of how attention above its mean is spread over 8-connected components, in nats.

    ReLU(A - mean(A)) is cut into components; with p_n the share of component n, H = -sum p_n log p_n over components
    whose sum exceeds 0.001. One compact blob has entropy 0; attention without any component (flat) has none: infinity,
    so that it is never taken for compact.

    Args:
        grid: attention on the image tokens of one row; (rows, columns).
    """
    raised = np.maximum(grid - grid.mean(), 0.0)
    labels, count = ndimage.label(raised > 0, structure=np.ones((3, 3)))
    sums = np.asarray(ndimage.sum_labels(raised, labels, np.arange(1, count + 1)), dtype=np.float64)
    sums = sums[sums > MASS_FLOOR]
    if not len(sums):
        return float("inf")
    p = sums / sums.sum()
    return float(-(p * np.log(p)).sum()) + 0.0  # no negative zero


def elbow(values: NDArray[np.float64]) -> float:
    """Value at the elbow of the sorted values: farthest from the chord between the smallest and the largest.

    The public code cuts by the head's *index* at the elbow, that is by layer position; this is the value, as the paper
    says. A head passes with a value above it.
    """
    ordered = np.sort(values)
    n = len(ordered)
    if n < 3 or ordered[0] == ordered[-1]:
        return float(ordered[0])
    x = np.arange(n) / (n - 1)
    y = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    return float(ordered[int(np.argmax(np.abs(x - y)))])


def localization_hits(
    image_mass: NDArray[np.float64], entropy: NDArray[np.float64], lowest: int
) -> NDArray[np.float64]:
    """Which heads one sample selects: among those with image mass above the elbow, the ``lowest`` entropies.

    Args:
        image_mass, entropy: (L, H), NaN where a head is absent.
        lowest: how many heads a sample may select.

    Returns:
        (L, H) of 0 and 1, NaN where a head is absent; ties by (layer, head).
    """
    present = ~np.isnan(image_mass)
    values = image_mass[present]
    # equal masses have no elbow: then the first criterion tells nothing apart and everyone passes
    cut = elbow(values) if values.min() < values.max() else -np.inf
    passed = present & (image_mass > cut) & np.isfinite(entropy)
    order = np.argsort(np.where(passed, entropy, np.inf).ravel(), kind="stable")
    hits = np.where(present, 0.0, np.nan)
    chosen = [i for i in order[:lowest] if passed.ravel()[i]]
    hits.ravel()[chosen] = 1.0
    return hits
