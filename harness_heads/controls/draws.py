"""Seeded draws of control sets, and the damage sets beside them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from harness_heads.controls.facts import HeadFacts, facts_of
from harness_heads.controls.families import FAMILIES, Draw, Request, pick
from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.heads import Head, HeadSet
from harness_heads.settings import CONTROL_FAMILIES

LOW_SCORE_PERCENTILE = 5.0  # the gaze-heads code's cut for heads that ignore the image
DAMAGE_SHARES = (200 / 1152, 400 / 1152)  # paper A, Table 12: random 200 and 400 of 1,152 heads
_MAX_REDRAWS = 10_000


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
    request = Request(parent, exclude_set, facts, low_score_percentile)
    return tuple(_one(request, family, seed, draw) for draw in range(count))


def _one(request: Request, family: str, seed: int, draw: int) -> HeadSet:
    rng = _generator(seed, family, request.parent, draw)
    own = frozenset(request.parent.heads)
    for _ in range(_MAX_REDRAWS):
        result = FAMILIES[family](request, rng)
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
    parent: HeadSet, result: Draw, family: str, seed: int, draw: int, facts: HeadFacts | None, name: str | None = None
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
        chosen = pick(_generator(seed, "damage", parent, draw), every, size, "the model")
        kinds.append((f"random-{size}", chosen, len(every)))
    kinds.append(("all-heads", every, len(every)))
    return tuple(
        _control(parent, Draw(heads, pool), "damage", seed, draw, facts, name)
        for draw, (name, heads, pool) in enumerate(kinds)
    )
