"""How much head sets share: chance, noise ceilings, crossover, shared and setting-specific heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from harness_heads.discovery.score import Scores, omega_mean, rank, top_heads
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet

SPLITS = 200  # paper A, Table 20
Aggregate = Callable[[Scores], Scores]


def shared(a: Sequence[Head] | HeadSet, b: Sequence[Head] | HeadSet) -> int:
    """Number of heads in both."""
    return len(set(a) & set(b))


def matrix(sets: Sequence[HeadSet]) -> NDArray[np.int64]:
    """Shared heads of every pair; (n, n), sizes on the diagonal.

    Raises:
        HarnessHeadsError: sets of models with different geometry.
    """
    for head_set in sets[1:]:
        check_geometry(sets[0], head_set)
    return np.array([[shared(a, b) for b in sets] for a in sets], dtype=np.int64)


def check_geometry(a: HeadSet, b: HeadSet) -> None:
    """Indices of two models can be compared only where the layers and heads are the same."""
    if a.geometry.heads != b.geometry.heads:
        raise HarnessHeadsError(
            f"head sets {a.name!r} ({len(a.geometry.heads)} layers, {a.geometry.total} heads) and {b.name!r} "
            f"({len(b.geometry.heads)} layers, {b.geometry.total} heads) have different geometry; indices do not match"
        )


@dataclass(frozen=True)
class Chance:
    """Overlap of two sets drawn at random.

    Attributes:
        mean, sd: of the overlap in heads.
        low, high: central 95 % interval of the overlap, whole heads.
    """

    mean: float
    sd: float
    low: int
    high: int


def chance_uniform(size_a: int, size_b: int, total: int) -> Chance:
    """Both sets uniform over all heads: hypergeometric."""
    for size in (size_a, size_b):
        if not 0 <= size <= total:
            raise HarnessHeadsError(f"chance overlap: a set of {size} heads does not fit a model of {total}")
    return _chance(_hypergeometric(total, size_a, size_b))


def chance_layer_matched(a: HeadSet, b: HeadSet) -> Chance:
    """Both sets uniform within each layer, with their own counts per layer: a sum of hypergeometrics."""
    check_geometry(a, b)
    density = np.ones(1)
    for total, in_a, in_b in zip(a.geometry.heads, a.per_layer, b.per_layer, strict=True):
        if in_a and in_b:
            density = np.convolve(density, _hypergeometric(total, in_a, in_b))
    return _chance(density)


def _hypergeometric(total: int, a: int, b: int) -> NDArray[np.float64]:
    return np.asarray(stats.hypergeom(total, a, b).pmf(np.arange(min(a, b) + 1)), dtype=np.float64)


def _chance(density: NDArray[np.float64]) -> Chance:
    values = np.arange(len(density))
    mean = float((values * density).sum())
    sd = math.sqrt(max(0.0, float(((values - mean) ** 2 * density).sum())))
    below = np.cumsum(density)
    # a probability of exactly .025 counts as reached, whatever rounding does to the sum
    low = int(np.searchsorted(below, 0.025 - 1e-12))
    high = int(np.searchsorted(below, 0.975 - 1e-12))
    return Chance(mean, sd, low, high)


def overlap_curve(a: Sequence[Head], b: Sequence[Head], sizes: Sequence[int]) -> list[int]:
    """Overlap of the first k of two rankings, for each k.

    Raises:
        HarnessHeadsError: a k beyond a ranking.
    """
    out = []
    for k in sizes:
        if not 1 <= k <= min(len(a), len(b)):
            raise HarnessHeadsError(f"overlap against k: k={k}, the shorter ranking holds {min(len(a), len(b))} heads")
        out.append(shared(a[:k], b[:k]))
    return out


@dataclass(frozen=True, eq=False)
class Scored:
    """A setting with its per-sample scores.

    Attributes:
        name: of the setting.
        geometry: of the model.
        scores: (N, L, H).
        clusters: of the N samples; halves keep clusters whole.
        aggregate: samples to one score matrix, the mean by default.
    """

    name: str
    geometry: Geometry
    scores: Scores
    clusters: tuple[str, ...]
    aggregate: Aggregate = omega_mean

    def __post_init__(self) -> None:
        if len(self.clusters) != len(self.scores):
            raise HarnessHeadsError(f"{self.name}: {len(self.clusters)} cluster names for {len(self.scores)} samples")


@dataclass(frozen=True)
class SplitHalf:
    """Overlap of two settings at half of the data, and what noise alone leaves of it.

    A full-data overlap must not be divided by this ceiling: it holds at ``half`` samples.

    Attributes:
        k: size of the sets.  half: samples in the smaller half.  splits: number of half-splits.
        cross: mean overlap of A's one half with B's other half (both assignments).
        cross_range: 2.5 and 97.5 percentile over splits; no confidence interval, splits reuse the same samples.
        own: mean overlap of A's halves, and of B's.
        ceiling: geometric mean of ``own`` (the attenuation formula).
        fraction: cross / ceiling, from unrounded values.
        chance: mean overlap of uniform sets.
        corrected: (cross - chance) / (ceiling - chance), NaN where the ceiling is at chance.
    """

    k: int
    half: int
    splits: int
    cross: float
    cross_range: tuple[float, float]
    own: tuple[float, float]
    ceiling: float
    fraction: float
    chance: float
    corrected: float


def split_half(a: Scored, b: Scored, k: int, *, splits: int = SPLITS, seed: int = 0) -> SplitHalf:
    """Overlap of two settings across halves, and its noise ceiling (paper A, Tables 1 and 20).

    Two settings with the same clusters are split alike, so that A's half and B's other half share no sample.

    Raises:
        HarnessHeadsError: different geometry, fewer than two clusters, or a ``k`` that does not fit.
    """
    if a.geometry.heads != b.geometry.heads:
        raise HarnessHeadsError(f"{a.name} and {b.name} have different geometry; indices do not match")
    rng = np.random.default_rng([seed, 0x5F])
    alike = a.clusters == b.clusters
    own_a, own_b, cross, smallest = [], [], [], len(a.scores)
    for _ in range(splits):
        first_a = _half(a, rng)
        first_b = first_a if alike else _half(b, rng)
        smallest = min(smallest, *(int(m.sum()) for f in (first_a, first_b) for m in (f, ~f)))
        a1, a2 = (_top(a, mask, k) for mask in (first_a, ~first_a))
        b1, b2 = (_top(b, mask, k) for mask in (first_b, ~first_b))
        own_a.append(shared(a1, a2))
        own_b.append(shared(b1, b2))
        cross.append((shared(a1, b2) + shared(a2, b1)) / 2)
    mean_a, mean_b, mean_cross = (float(np.mean(v)) for v in (own_a, own_b, cross))
    ceiling = math.sqrt(mean_a * mean_b)
    chance = k * k / a.geometry.total
    low, high = (float(q) for q in np.percentile(cross, [2.5, 97.5]))
    return SplitHalf(
        k,
        smallest,
        splits,
        mean_cross,
        (low, high),
        (mean_a, mean_b),
        ceiling,
        mean_cross / ceiling if ceiling else math.nan,
        chance,
        (mean_cross - chance) / (ceiling - chance) if ceiling > chance else math.nan,
    )


def _half(scored: Scored, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which samples fall into the first half; whole clusters, half of them."""
    names = sorted(set(scored.clusters))
    if len(names) < 2:
        raise HarnessHeadsError(f"{scored.name}: split halves need at least two clusters, there is {len(names)}")
    first = {names[i] for i in rng.permutation(len(names))[: len(names) // 2]}
    return np.array([cluster in first for cluster in scored.clusters])


def _top(scored: Scored, mask: NDArray[np.bool_], k: int) -> tuple[Head, ...]:
    return top_heads(scored.aggregate(scored.scores[mask]), scored.geometry, k)


def crossover(
    combinations: Mapping[str, Sequence[Head]], native: Mapping[str, Sequence[Head]], k: int
) -> dict[str, dict[str, int]]:
    """Overlap of each combination's top k with each native set's top k (paper A, Tables 2 and 21).

    Returns:
        ``[combination][native set]`` shared heads.
    """
    table: dict[str, dict[str, int]] = {}
    for name, ranking in combinations.items():
        table[name] = {other: overlap_curve(ranking, heads, [k])[0] for other, heads in native.items()}
    return table


@dataclass(frozen=True)
class Decomposition:
    """Two sets cut into what they share and what each has alone; an empty part is ``None``."""

    shared: HeadSet | None
    only_a: HeadSet | None
    only_b: HeadSet | None


def decompose(a: HeadSet, b: HeadSet) -> Decomposition:
    """Shared and setting-specific heads as new head sets (paper A, Table 15), in the order of their own set.

    Raises:
        HarnessHeadsError: different geometry, or different models (transfer one of them first).
    """
    check_geometry(a, b)
    if a.model.id != b.model.id:
        raise HarnessHeadsError(f"head sets {a.name!r} and {b.name!r} are of different models; transfer one first")
    both = set(a) & set(b)
    return Decomposition(
        _part(a, f"{a.name}/shared-with-{_tail(b)}", lambda h: h in both, a, b, "shared"),
        _part(a, f"{a.name}/without-{_tail(b)}", lambda h: h not in both, a, b, "only"),
        _part(b, f"{b.name}/without-{_tail(a)}", lambda h: h not in both, a, b, "only"),
    )


def _tail(head_set: HeadSet) -> str:
    return head_set.name.rsplit("/", 1)[-1]


def _part(
    source: HeadSet, name: str, keep: Callable[[Head], bool], a: HeadSet, b: HeadSet, part: str
) -> HeadSet | None:
    rows = [(h, s) for h, s in zip(source.heads, source.scores, strict=True) if keep(h)]
    if not rows:
        return None
    provenance = {"kind": "part", "part": part, "of": [[a.name, a.identity], [b.name, b.identity]]}
    if "facts" in source.provenance:
        provenance["facts"] = source.provenance["facts"]
    return replace(
        source, name=name, heads=tuple(h for h, _ in rows), scores=tuple(s for _, s in rows), provenance=provenance
    )


def rankings(scored: Sequence[Scored]) -> dict[str, list[Head]]:
    """All heads of each setting, best first."""
    return {s.name: rank(s.aggregate(s.scores), s.geometry) for s in scored}
