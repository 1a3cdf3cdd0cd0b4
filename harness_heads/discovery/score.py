"""The unified score of paper B (Eq. 1) over what was measured, and the ranking of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.heads import Geometry, Head

Scores = NDArray[np.float64]
"""(L, H): decoder layers x largest number of heads, NaN where a layer has no such head."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Measures of all samples of a pass.

    Attributes:
        values: float32 (N samples, S sources, V measures, L, H), NaN where a head is absent.
        sources, measures: names along the axes S and V.
    """

    values: NDArray[np.float32]
    sources: tuple[str, ...]
    measures: tuple[str, ...]

    def of(self, source: str, measure: str) -> Scores:
        """Per-sample values of one source and measure; float64 (N, L, H).

        Raises:
            HarnessHeadsError: what was not measured.
        """
        for word, known, what in ((source, self.sources, "source"), (measure, self.measures, "measure")):
            if word not in known:
                raise HarnessHeadsError(
                    f"{what} {word!r} was not measured{did_you_mean(word, known)} (there is: {', '.join(known)})"
                )
        picked = self.values[:, self.sources.index(source), self.measures.index(measure)]
        return picked.astype(np.float64)


def omega_mean(per_sample: Scores) -> Scores:
    """Mean over samples, accumulated in float64; (N, L, H) -> (L, H)."""
    _check(per_sample)
    return np.asarray(per_sample.mean(axis=0, dtype=np.float64))


def omega_freq(per_sample: Scores, top: int) -> Scores:
    """Share of samples in which a head is among that sample's ``top`` heads; (N, L, H) -> (L, H), in [0, 1].

    Ties at the border go to the earlier (layer, head).
    """
    _check(per_sample)
    present = ~np.isnan(per_sample[0])
    total = int(present.sum())
    if not 1 <= top <= total:
        raise HarnessHeadsError(f"frequency aggregation: top {top} of {total} heads; give 1 to {total}")
    counts = np.zeros(per_sample.shape[1:])
    for sample in per_sample:
        order = np.argsort(-np.where(present, sample, -np.inf).ravel(), kind="stable")[:top]
        counts.ravel()[order] += 1
    return np.where(present, counts / len(per_sample), np.nan)


def _check(per_sample: Scores) -> None:
    if per_sample.ndim != 3 or not len(per_sample):
        raise HarnessHeadsError(f"scores of shape {per_sample.shape}: (samples, layers, heads) with a sample is needed")
    if not np.isfinite(per_sample[:, ~np.isnan(per_sample).all(axis=0)]).all():
        raise HarnessHeadsError("scores hold values that are not finite; a sample was read wrongly")


def rank(scores: Scores, geometry: Geometry) -> list[Head]:
    """All heads, best first; ties by (layer, head) as in the public gaze-heads code (stable sort).

    Raises:
        HarnessHeadsError: a score matrix of another geometry, or a present head without a score.
    """
    heads = geometry.all_heads()
    if scores.shape != (len(geometry.heads), max(geometry.heads)):
        raise HarnessHeadsError(f"scores of shape {scores.shape} do not fit {len(geometry.heads)} layers")
    values = np.array([scores[h.layer, h.head] for h in heads])
    if np.isnan(values).any():
        raise HarnessHeadsError(f"head {heads[int(np.isnan(values).argmax())]} has no score")
    return [heads[i] for i in np.argsort(-values, kind="stable")]


def top_heads(scores: Scores, geometry: Geometry, k: int) -> tuple[Head, ...]:
    """The ``k`` best heads of the model (flat top k).

    Raises:
        HarnessHeadsError: ``k`` below 1 or above the number of softmax heads.
    """
    if not 1 <= k <= geometry.total:
        raise HarnessHeadsError(
            f"k={k}: the model has {geometry.total} softmax attention heads; give 1 to {geometry.total}"
        )
    return tuple(rank(scores, geometry)[:k])


def top_per_layer(scores: Scores, geometry: Geometry, k: int) -> tuple[Head, ...]:
    """The ``k`` best heads of every layer (paper A, Table 5: 3 x 36 = 108), best first over the whole model.

    Raises:
        HarnessHeadsError: ``k`` below 1 or above the heads of a layer that has some.
    """
    smallest = min(n for n in geometry.heads if n)
    if not 1 <= k <= smallest:
        raise HarnessHeadsError(f"k={k} per layer: the smallest layer has {smallest} heads; give 1 to {smallest}")
    taken = {layer: 0 for layer in range(len(geometry.heads))}
    chosen = []
    for head in rank(scores, geometry):
        if taken[head.layer] < k:
            taken[head.layer] += 1
            chosen.append(head)
    return tuple(chosen)


def half_mass_share(scores: Scores) -> float:
    """Smallest share of heads that hold half of the positive score mass (multimodal retrieval heads), in (0, 1].

    NaN where no score is positive.
    """
    values = scores[~np.isnan(scores)]
    positive = np.sort(values[values > 0])[::-1]
    if not len(positive):
        return float("nan")
    needed = int(np.searchsorted(np.cumsum(positive), positive.sum() / 2)) + 1
    return needed / len(values)


def default_k(geometry: Geometry) -> int:
    """As many heads as a set may hold by default: at most 9 % of the model (paper A: 100 of 1,152), at most 100."""
    return max(1, min(100, int(0.09 * geometry.total)))


def ordered_scores(scores: Scores, heads: Sequence[Head]) -> tuple[float, ...]:
    """Score of each head, in the heads' order."""
    return tuple(float(scores[h.layer, h.head]) for h in heads)
