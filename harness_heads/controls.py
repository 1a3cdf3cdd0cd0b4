"""Control families: which random (or matched, or deliberately damaging) sets a discovered set is held against.

Draw ``r`` of a family depends on the seed, the family and the parent's identity alone, so that asking for more draws
keeps the first ones and every table of a run compares with the same sets. A draw has exactly the parent's size or is
an error; a draw that equals the parent is drawn again. Which null each family states is written in docs/head-sets.md.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, SetEntry, SetTable, empty_set
from harness_heads.settings import CONTROL_FAMILIES, Settings

LOW_SCORE_PERCENTILE = 5.0  # the gaze-heads code's cut for heads that ignore the image
NEAREST = 3  # attention-matched: candidates of closest image mass, one of which is drawn
DAMAGE_SHARES = (200 / 1152, 400 / 1152)  # paper A, Table 12: random 200 and 400 of 1,152 heads
_MAX_REDRAWS = 10_000


@dataclass(frozen=True)
class HeadFacts:
    """What a discovery run measured of *every* head; control families that match on attention need it.

    Attributes:
        image_mass: mean attention mass on image tokens, in [0, 1].
        sink_mass: mean mass on the first token, in [0, 1]; empty where not measured.
        text_mass: mean mass on all other tokens, in [0, 1]; empty where not measured.
        scores: discovery score of the setting that the set came from; empty where not measured.
    """

    image_mass: Mapping[Head, float] = field(default_factory=dict)
    sink_mass: Mapping[Head, float] = field(default_factory=dict)
    text_mass: Mapping[Head, float] = field(default_factory=dict)
    scores: Mapping[Head, float] = field(default_factory=dict)

    def to_dict(self, geometry: Geometry) -> dict[str, list[list[float]]]:
        """Plain JSON value: per measure one list of numbers a layer."""
        out: dict[str, list[list[float]]] = {}
        for name, values in vars(self).items():
            if values:
                out[name] = [
                    [float(f"{values[Head(layer, h)]:.6g}") for h in geometry.pool(layer)]
                    for layer in range(len(geometry.heads))
                ]
        return out


def facts_from_dict(value: Mapping[str, Sequence[Sequence[float]]], geometry: Geometry, source: str) -> HeadFacts:
    """Read what :meth:`HeadFacts.to_dict` wrote; ``source`` names the file in errors."""
    measures: dict[str, dict[Head, float]] = {}
    for name, rows in value.items():
        if tuple(len(row) for row in rows) != geometry.heads:
            raise HarnessHeadsError(f"{source}: per-head {name} does not fit the geometry; re-run discovery")
        measures[name] = {Head(layer, h): row[h] for layer, row in enumerate(rows) for h in range(len(row))}
    return HeadFacts(**measures)


def facts_of(head_set: HeadSet) -> HeadFacts | None:
    """The facts that a discovery run left in the set's provenance, or ``None`` (published sets have none)."""
    value = head_set.provenance.get("facts")
    return None if value is None else facts_from_dict(value, head_set.geometry, f"head set {head_set.name!r}")


@dataclass(frozen=True)
class _Request:
    """What a family sees of one draw."""

    parent: HeadSet
    exclude_set: bool
    facts: HeadFacts | None
    percentile: float


@dataclass(frozen=True)
class _Draw:
    """What a family answers: the heads and the size of the pool that they came from."""

    heads: tuple[Head, ...]
    pool: int


def draw_controls(
    parent: HeadSet,
    family: str,
    count: int,
    seed: int,
    *,
    exclude_set: bool = False,
    facts: HeadFacts | None = None,
    low_score_percentile: float = LOW_SCORE_PERCENTILE,
) -> tuple[HeadSet, ...]:
    """Control sets of one family, draws 0 to ``count`` - 1.

    Args:
        parent: the set that they are held against.
        family: one of :data:`~harness_heads.settings.CONTROL_FAMILIES`. ``damage`` gives one set a kind of damage and
            takes no notice of ``count``; its sizes are its own.
        count: number of draws.
        seed: seed of the family's stream, 0 or more.
        exclude_set: leave the parent's heads out of the pool (``layer``, ``any`` and ``kv_group``; the other families
            never contain them).
        facts: measures of every head; by default those in the parent's provenance.
        low_score_percentile: upper end of the ``low_score`` pool in percent.

    Returns:
        Sets in draw order; the provenance of each holds family, seed, draw, pool size, overlap with the parent and,
        where it is known, the mean image mass of both.

    Raises:
        HarnessHeadsError: unknown family, bad count or seed, empty parent, a pool that is too small, missing facts, or
            a family that can only return the parent itself.
    """
    if family not in CONTROL_FAMILIES:
        known = ", ".join(CONTROL_FAMILIES)
        raise HarnessHeadsError(
            f"unknown control family {family!r}{did_you_mean(family, CONTROL_FAMILIES)} (known: {known})"
        )
    if count < 0:
        raise HarnessHeadsError(f"controls={count}: the number of control sets must be 0 or more")
    if seed < 0:
        raise HarnessHeadsError(f"control_seed={seed}: the seed must be 0 or more")
    if not parent.heads:
        raise HarnessHeadsError(f"head set {parent.name!r} is empty; controls need at least one head to match")
    facts = facts or facts_of(parent)
    if family == "damage":
        return _damage_sets(parent, seed, facts)
    request = _Request(parent, exclude_set, facts, low_score_percentile)
    return tuple(_one(request, family, seed, draw) for draw in range(count))


def _one(request: _Request, family: str, seed: int, draw: int) -> HeadSet:
    rng = _generator(seed, family, request.parent, draw)
    own = frozenset(request.parent.heads)
    for _ in range(_MAX_REDRAWS):
        result = _FAMILIES[family](request, rng)
        if frozenset(result.heads) != own:
            return _control(request.parent, result, family, seed, draw, request.facts)
    raise HarnessHeadsError(
        f"head set {request.parent.name!r}: no {family!r} control differs from the set itself; "
        "it fills the pool, so use another family or a smaller top_k"
    )


def _generator(seed: int, family: str, parent: HeadSet, draw: int) -> np.random.Generator:
    """A stream of its own for each draw, whatever else is drawn."""
    digest = hashlib.sha256(f"{family}:{parent.identity}".encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]
    return np.random.default_rng(np.random.SeedSequence([seed, draw, *words]))


def _control(
    parent: HeadSet, result: _Draw, family: str, seed: int, draw: int, facts: HeadFacts | None, name: str | None = None
) -> HeadSet:
    heads = tuple(sorted(result.heads))
    if family != "damage" and len(set(heads)) != len(parent):
        raise HarnessHeadsError(f"{family!r} control {draw} has {len(set(heads))} heads, its set has {len(parent)}")
    provenance: dict[str, Any] = {
        "kind": "control",
        "family": family,
        "seed": seed,
        "draw": draw,
        "parent": parent.key,
        "pool": result.pool,
        "overlap": len(set(heads) & set(parent.heads)),
    }
    if facts is not None and facts.image_mass:
        provenance["image_mass"] = {
            "set": _mean(facts.image_mass[h] for h in parent),
            "control": _mean(facts.image_mass[h] for h in heads),
        }
    return HeadSet(
        f"{parent.name}/{name or f'{family}-{draw}'}", parent.model, parent.geometry, heads, provenance=provenance
    )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)


def _pick(rng: np.random.Generator, pool: Sequence[Head], count: int, what: str) -> tuple[Head, ...]:
    """``count`` heads of ``pool``, uniformly without replacement; ``what`` names the pool in the error."""
    if count > len(pool):
        raise HarnessHeadsError(f"{what} holds {len(pool)} heads, {count} are needed; use another family or top_k")
    return tuple(pool[i] for i in rng.choice(len(pool), size=count, replace=False))


def _layer_pool(request: _Request, layer: int) -> list[Head]:
    own = set(request.parent.heads) if request.exclude_set else set()
    return [h for i in request.parent.geometry.pool(layer) if (h := Head(layer, i)) not in own]


def _layer(request: _Request, rng: np.random.Generator) -> _Draw:
    """Same number of heads in every layer, uniform over all sets with this profile: the exact null of the rank test."""
    heads: list[Head] = []
    size = 0
    for layer, need in enumerate(request.parent.per_layer):
        if need:
            pool = _layer_pool(request, layer)
            size += len(pool)
            outside = " outside the set" if request.exclude_set else ""
            heads += _pick(rng, pool, need, f"control family 'layer': layer {layer}{outside}")
    return _Draw(tuple(heads), size)


def _any(request: _Request, rng: np.random.Generator) -> _Draw:
    """As many heads anywhere."""
    own = set(request.parent.heads) if request.exclude_set else set()
    pool = [h for h in request.parent.geometry.all_heads() if h not in own]
    return _Draw(_pick(rng, pool, len(request.parent), "control family 'any': the model"), len(pool))


def _disjoint(request: _Request, rng: np.random.Generator) -> _Draw:
    """As many heads outside the set, any layer: the random heads of paper B (section J)."""
    own = set(request.parent.heads)
    pool = [h for h in request.parent.geometry.all_heads() if h not in own]
    return _Draw(_pick(rng, pool, len(own), "control family 'disjoint': the model outside the set"), len(pool))


def _attention(request: _Request, rng: np.random.Generator) -> _Draw:
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
                _pick(rng, pool, need, f"control family 'attention': layer {layer} outside the set")
    # the order is random because the first head of a layer has the widest choice
    for index in rng.permutation(len(request.parent)):
        target = request.parent.heads[index]
        free = [
            h for i in request.parent.geometry.pool(target.layer) if (h := Head(target.layer, i)) not in own | taken
        ]
        free.sort(key=lambda h: (abs(mass[h] - mass[target]), h))
        taken.add(free[int(rng.integers(min(NEAREST, len(free))))])
    return _Draw(tuple(taken), size)


def _low_score(request: _Request, rng: np.random.Generator) -> _Draw:
    """Heads outside the set that score below the 5th percentile, as the public gaze-heads code draws them.

    A weak family: such heads ignore the image, so that nothing can happen when it is cut from them.
    """
    scores = _facts(request.facts, "scores", "low_score")
    own = set(request.parent.heads)
    cut = float(np.percentile(list(scores.values()), request.percentile))
    pool = [h for h in request.parent.geometry.all_heads() if h not in own and scores[h] < cut]
    what = f"control family 'low_score': the model below the {request.percentile:g}th percentile"
    return _Draw(_pick(rng, pool, len(own), what), len(pool))


def _kv_group(request: _Request, rng: np.random.Generator) -> _Draw:
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
    return _Draw(tuple(heads), size)


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
        heads += _pick(rng, pool, counts[i], f"a key/value group of layer {layer}")
    return heads


def _facts(facts: HeadFacts | None, name: str, family: str) -> Mapping[Head, float]:
    values: Mapping[Head, float] = getattr(facts, name) if facts is not None else {}
    if not values:
        raise HarnessHeadsError(
            f"control family {family!r} needs {name} of every head, which this set does not carry; "
            "find heads with `harness-heads discover` on this model, or use control_family=layer"
        )
    return values


_FAMILIES: Mapping[str, Callable[[_Request, np.random.Generator], _Draw]] = {
    "layer": _layer,
    "any": _any,
    "attention": _attention,
    "low_score": _low_score,
    "disjoint": _disjoint,
    "kv_group": _kv_group,
}


def _damage_sets(parent: HeadSet, seed: int, facts: HeadFacts | None) -> tuple[HeadSet, ...]:
    """Generic damage (paper A, Table 12; reconstruction): what breaking *some* heads does, whatever they look at.

    Attention sinks and text-heavy heads (as many as the set has, by mass; only with facts), whole layers (the number of
    heads nearest to the set's size, at least one layer), random 17 % and 35 % of the model, and all heads.
    """
    geometry = parent.geometry
    k, every = len(parent), geometry.all_heads()
    kinds: list[tuple[str, tuple[Head, ...], int]] = []
    for kind, measure in (("sinks", "sink_mass"), ("text-heavy", "text_mass")):
        values = getattr(facts, measure) if facts is not None else {}
        if values:
            ranked = sorted(every, key=lambda h: (-values[h], h))
            kinds.append((kind, tuple(ranked[:k]), len(every)))
    rng = _generator(seed, "damage", parent, 0)
    layers = [layer for layer, n in enumerate(geometry.heads) if n]
    order = [layers[i] for i in rng.permutation(len(layers))]
    whole: list[Head] = []
    for layer in order:
        added = [Head(layer, h) for h in geometry.pool(layer)]
        if whole and abs(len(whole) + len(added) - k) >= abs(len(whole) - k):
            break
        whole += added
    kinds.append(("whole-layers", tuple(whole), len(every)))
    for draw, share in enumerate(DAMAGE_SHARES, start=1):
        size = max(1, round(share * len(every)))
        chosen = _pick(_generator(seed, "damage", parent, draw), every, size, "the model")
        kinds.append((f"random-{size}", chosen, len(every)))
    kinds.append(("all-heads", every, len(every)))
    return tuple(
        _control(parent, _Draw(heads, pool), "damage", seed, draw, facts, name)
        for draw, (name, heads, pool) in enumerate(kinds)
    )


def set_table(
    discovered: Sequence[HeadSet],
    settings: Settings,
    model: ModelRef,
    geometry: Geometry,
    facts: HeadFacts | None = None,
) -> SetTable:
    """Every set of a run: the empty set, the discovered sets (cut by ``top_k``), their controls and their damage sets.

    Args:
        discovered: sets found on this model, or transferred to it by :func:`harness_heads.head_sets.check_model`.
        settings: ``top_k``, ``controls``, ``control_family``, ``control_seed`` and ``exclude_set`` are read.
        model, geometry: of the loaded model; the empty set and the identity digests carry them.
        facts: measures of every head; by default those in each set's provenance.

    Returns:
        The table: empty, discovered or subset, then each set's controls, family by family in draw order. A set that
        ``top_k`` cuts has the role ``subset`` and the uncut set's key as parent.

    Raises:
        HarnessHeadsError: a set of another model or geometry, two names for the same heads, or what
            :func:`draw_controls` raises.
    """
    entries = [SetEntry("empty", empty_set(model, geometry))]
    for head_set in discovered:
        if head_set.model.id != model.id or head_set.geometry.heads != geometry.heads:
            raise HarnessHeadsError(
                f"head set {head_set.name!r} is of {head_set.model.id}, the run is of {model.id}; see check_model"
            )
        if head_set.geometry.kv_heads is None and geometry.kv_heads is not None:
            head_set = replace(head_set, geometry=geometry)
        if not settings.top_k:
            entries.append(SetEntry("discovered", head_set))
        for k in settings.top_k:
            cut = head_set.top(k)
            whole = cut is head_set
            entries.append(SetEntry("discovered", cut) if whole else SetEntry("subset", cut, parent=head_set.key))
    _check_distinct(entries)
    controls: list[SetEntry] = []
    for entry in entries[1:]:
        for family in settings.control_family if settings.controls else ():
            drawn = draw_controls(
                entry.heads,
                family,
                settings.controls,
                settings.control_seed,
                exclude_set=settings.exclude_set,
                facts=facts,
            )
            role = "damage" if family == "damage" else "control"
            controls += [
                SetEntry(role, heads, family, entry.key, draw, settings.control_seed)
                for draw, heads in enumerate(drawn)
            ]
    return SetTable((*entries, *controls))


def _check_distinct(entries: Sequence[SetEntry]) -> None:
    seen: dict[str, str] = {}
    for entry in entries[1:]:
        if not entry.heads.heads:
            raise HarnessHeadsError(f"head set {entry.heads.name!r} is empty; the baseline is there already")
        if entry.key in seen:
            raise HarnessHeadsError(
                f"head_set: {seen[entry.key]!r} and {entry.heads.name!r} are the same heads; name them once"
            )
        seen[entry.key] = entry.heads.name
