"""How much head sets share: chance, noise ceilings, crossover, shared and setting-specific heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness_heads.discovery.chance import Chance, ceiling_fraction, layer_chance
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


def chance_layer_matched(a: HeadSet, b: HeadSet) -> Chance:
    """Chance overlap of two sets with their own counts per layer."""
    check_geometry(a, b)
    return layer_chance(a.per_layer, b.per_layer, a.geometry.heads)


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

    Clusters that both settings read fall into the same half of both, so that A's half and B's other half share no
    sample, even where one setting read more samples than the other.

    Raises:
        HarnessHeadsError: different geometry, fewer than two clusters, or a ``k`` that does not fit.
    """
    if a.geometry.heads != b.geometry.heads:
        raise HarnessHeadsError(f"{a.name} and {b.name} have different geometry; indices do not match")
    for scored in (a, b):
        if len(set(scored.clusters)) < 2:
            raise HarnessHeadsError(f"{scored.name}: split halves need at least two clusters, there is 1")
    rng = np.random.default_rng([seed, 0x5F])
    names_a, names_b = set(a.clusters), set(b.clusters)
    groups = [sorted(g) for g in (names_a & names_b, names_a - names_b, names_b - names_a)]
    own_a, own_b, cross, smallest = [], [], [], len(a.scores)
    for _ in range(splits):
        first = _first_half(groups, rng)
        first_a, first_b = (np.array([c in first for c in scored.clusters]) for scored in (a, b))
        smallest = min(smallest, *(int(m.sum()) for f in (first_a, first_b) for m in (f, ~f)))
        a1, a2 = (_top(a, mask, k) for mask in (first_a, ~first_a))
        b1, b2 = (_top(b, mask, k) for mask in (first_b, ~first_b))
        own_a.append(shared(a1, a2))
        own_b.append(shared(b1, b2))
        cross.append((shared(a1, b2) + shared(a2, b1)) / 2)
    mean_a, mean_b, mean_cross = (float(np.mean(v)) for v in (own_a, own_b, cross))
    chance = k * k / a.geometry.total
    found = ceiling_fraction(mean_cross, mean_a, mean_b, chance)
    low, high = (float(q) for q in np.percentile(cross, [2.5, 97.5]))
    return SplitHalf(
        k,
        smallest,
        splits,
        mean_cross,
        (low, high),
        (mean_a, mean_b),
        found.ceiling,
        found.fraction,
        chance,
        found.corrected,
    )


def _first_half(groups: Sequence[Sequence[str]], rng: np.random.Generator) -> set[str]:
    """Half of the clusters of each group; of the groups with an odd number, every second one gives one more."""
    first: set[str] = set()
    more = 0
    for names in groups:
        take = (len(names) + more) // 2
        more = (len(names) + more) % 2
        first |= {names[i] for i in rng.permutation(len(names))[:take]}
    return first


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
        _part(a, f"{a.name}/shared-with-{_beside(a, b)}", lambda h: h in both, a, b, "shared"),
        _part(a, f"{a.name}/without-{_beside(a, b)}", lambda h: h not in both, a, b, "only"),
        _part(b, f"{b.name}/without-{_beside(b, a)}", lambda h: h not in both, a, b, "only"),
    )


def distinct(sets: Sequence[HeadSet]) -> list[HeadSet]:
    """The sets, those that bear one name (the same setting of two runs) with their keys behind it."""
    names = [s.name for s in sets]
    return [s if names.count(s.name) == 1 else replace(s, name=f"{s.name}-{s.key}") for s in sets]


def _beside(one: HeadSet, other: HeadSet) -> str:
    """The other's name without the parts it begins with in common; its key where nothing is left."""
    mine, parts = one.name.split("/"), other.name.split("/")
    common = next((i for i, (x, y) in enumerate(zip(mine, parts, strict=False)) if x != y), min(len(mine), len(parts)))
    return "-".join(parts[common:]) or other.key


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
