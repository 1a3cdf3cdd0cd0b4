"""The families that draw: what each one's pool is, and how a draw is taken from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness_heads.controls.facts import HeadFacts
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head, HeadSet

NEAREST = 3  # attention-matched: candidates of closest image mass, one of which is drawn


@dataclass(frozen=True)
class Request:
    """What a family sees of one draw."""

    parent: HeadSet
    exclude_set: bool
    facts: HeadFacts | None
    percentile: float


@dataclass(frozen=True)
class Draw:
    """What a family answers: the heads and the size of the pool that they came from."""

    heads: tuple[Head, ...]
    pool: int


def pick(rng: np.random.Generator, pool: Sequence[Head], count: int, what: str) -> tuple[Head, ...]:
    """``count`` heads of ``pool``, uniformly without replacement; ``what`` names the pool in the error."""
    if count > len(pool):
        raise HarnessHeadsError(f"{what} holds {len(pool)} heads, {count} are needed; use another family or top_k")
    return tuple(pool[i] for i in rng.choice(len(pool), size=count, replace=False))


def _layer_pool(request: Request, layer: int) -> list[Head]:
    own = set(request.parent.heads) if request.exclude_set else set()
    return [h for i in request.parent.geometry.pool(layer) if (h := Head(layer, i)) not in own]


def _layer(request: Request, rng: np.random.Generator) -> Draw:
    """Same number of heads in every layer, uniform over all sets with this profile: the exact null of the rank test."""
    heads: list[Head] = []
    size = 0
    for layer, need in enumerate(request.parent.per_layer):
        if need:
            pool = _layer_pool(request, layer)
            size += len(pool)
            outside = " outside the set" if request.exclude_set else ""
            heads += pick(rng, pool, need, f"control family 'layer': layer {layer}{outside}")
    return Draw(tuple(heads), size)


def _any(request: Request, rng: np.random.Generator) -> Draw:
    """As many heads anywhere."""
    own = set(request.parent.heads) if request.exclude_set else set()
    pool = [h for h in request.parent.geometry.all_heads() if h not in own]
    return Draw(pick(rng, pool, len(request.parent), "control family 'any': the model"), len(pool))


def _disjoint(request: Request, rng: np.random.Generator) -> Draw:
    """As many heads outside the set, any layer: the random heads of paper B (section J)."""
    own = set(request.parent.heads)
    pool = [h for h in request.parent.geometry.all_heads() if h not in own]
    return Draw(pick(rng, pool, len(own), "control family 'disjoint': the model outside the set"), len(pool))


def _attention(request: Request, rng: np.random.Generator) -> Draw:
    """Same layers, close in image mass: for each head one of the nearest heads of its layer outside the set.

    Reconstruction of paper A's family B (Table 9). A set of the layer's strongest heads cannot be matched exactly; the
    achieved mass stands in the control's provenance.
    """
    mass = _facts(request.facts, "image_mass", "attention")
    own = set(request.parent.heads)
    taken: set[Head] = set()
    size = 0
    for layer, need in enumerate(request.parent.per_layer):
        if need:
            pool = [h for i in request.parent.geometry.pool(layer) if (h := Head(layer, i)) not in own]
            size += len(pool)
            if need > len(pool):
                pick(rng, pool, need, f"control family 'attention': layer {layer} outside the set")
    # the order is random because the first head of a layer has the widest choice
    for index in rng.permutation(len(request.parent)):
        target = request.parent.heads[index]
        free = [
            h for i in request.parent.geometry.pool(target.layer) if (h := Head(target.layer, i)) not in own | taken
        ]
        free.sort(key=lambda h: (abs(mass[h] - mass[target]), h))
        taken.add(free[int(rng.integers(min(NEAREST, len(free))))])
    return Draw(tuple(taken), size)


def _low_score(request: Request, rng: np.random.Generator) -> Draw:
    """Heads outside the set that score below the 5th percentile, as the public gaze-heads code draws them.

    A weak family: such heads ignore the image, so that nothing can happen when it is cut from them.
    """
    scores = _facts(request.facts, "scores", "low_score")
    own = set(request.parent.heads)
    cut = float(np.percentile(list(scores.values()), request.percentile))
    pool = [h for h in request.parent.geometry.all_heads() if h not in own and scores[h] < cut]
    what = f"control family 'low_score': the model below the {request.percentile:g}th percentile"
    return Draw(pick(rng, pool, len(own), what), len(pool))


def _kv_group(request: Request, rng: np.random.Generator) -> Draw:
    """Same layers and, within each layer, the same numbers of heads per key/value group (2+1+0 stays 2+1+0).

    Uniform over all sets with this profile: the counts are dealt to the layer's groups at random, then each group is
    drawn from.
    """
    geometry = request.parent.geometry
    if geometry.kv_heads is None:
        geometry.kv_group(request.parent.heads[0])  # raises the error that says what is missing
    assert geometry.kv_heads is not None
    heads: list[Head] = []
    size = 0
    for layer, need in enumerate(request.parent.per_layer):
        if not need:
            continue
        pools: list[list[Head]] = [[] for _ in range(geometry.kv_heads[layer])]
        for head in _layer_pool(request, layer):
            pools[geometry.kv_group(head)].append(head)
        size += sum(map(len, pools))
        used = Counter(geometry.kv_group(h) for h in request.parent if h.layer == layer)
        counts = [used[group] for group in range(len(pools))]
        heads += _dealt(rng, pools, counts, layer)
    return Draw(tuple(heads), size)


def _dealt(rng: np.random.Generator, pools: Sequence[Sequence[Head]], counts: Sequence[int], layer: int) -> list[Head]:
    if any(need > have for need, have in zip(sorted(counts), sorted(map(len, pools)), strict=True)):
        raise HarnessHeadsError(
            f"control family 'kv_group': the key/value groups of layer {layer} outside the set are too small for "
            f"{sorted(counts, reverse=True)} heads; leave exclude_set off or use another family"
        )
    while True:
        order = rng.permutation(len(pools))
        if all(counts[i] <= len(pool) for i, pool in zip(order, pools, strict=True)):
            break
    heads: list[Head] = []
    for i, pool in zip(order, pools, strict=True):
        heads += pick(rng, pool, counts[i], f"a key/value group of layer {layer}")
    return heads


def _facts(facts: HeadFacts | None, name: str, family: str) -> Mapping[Head, float]:
    values: Mapping[Head, float] = getattr(facts, name) if facts is not None else {}
    if not values:
        raise HarnessHeadsError(
            f"control family {family!r} needs {name} of every head, which this set does not carry; "
            "find heads with `harness-heads discover` on this model, or use control_family=layer"
        )
    return values


FAMILIES: Mapping[str, Callable[[Request, np.random.Generator], Draw]] = {
    "layer": _layer,
    "any": _any,
    "attention": _attention,
    "low_score": _low_score,
    "disjoint": _disjoint,
    "kv_group": _kv_group,
}
