"""Head, Geometry and ModelRef: one head, how many there are in each layer, and whose they are.

A head is a *query* head; layers and heads are 0-based decoder indices (with grouped-query attention several heads
share one key/value head).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

from harness_heads.errors import HarnessHeadsError
from harness_heads.plain import entries, is_index, mapping, shown, text


class Head(NamedTuple):
    """One query head: 0-based decoder layer and 0-based query-head index inside it."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}.{self.head}"


def as_head(pair: object, owner: str) -> Head:
    """A head from a pair of whole numbers, numpy's among them.

    Raises:
        HarnessHeadsError: naming ``owner``; a float is not cut to a whole number, a word not read letter by letter.
    """
    parts = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else ()
    if len(parts) != 2 or any(isinstance(part, bool) or not isinstance(part, Integral) for part in parts):
        found = str(tuple(pair)) if isinstance(pair, Head) else shown(pair)
        raise HarnessHeadsError(f"{owner}: {found} is no head; give (layer, head), two whole numbers >= 0")
    return Head(int(parts[0]), int(parts[1]))


@dataclass(frozen=True)
class ModelRef:
    """Which weights a set belongs to: hub id (or embedded name) and revision, ``None`` where unknown."""

    id: str
    revision: str | None = None


@dataclass(frozen=True)
class Geometry:
    """Softmax query heads per decoder layer (0 for a layer without any) and, where known, key/value heads."""

    heads: tuple[int, ...]
    kv_heads: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for layer, count in enumerate(self.heads):
            if not is_index(count):
                raise HarnessHeadsError(f"geometry: layer {layer} has {count!r} heads; give a whole number >= 0")
        if self.kv_heads is None:
            return
        if len(self.kv_heads) != len(self.heads):
            raise HarnessHeadsError(
                f"geometry: {len(self.kv_heads)} kv entries for {len(self.heads)} layers; give one per layer"
            )
        for layer, (count, kv) in enumerate(zip(self.heads, self.kv_heads, strict=True)):
            if not is_index(kv) or (count and (not kv or count % kv)):
                raise HarnessHeadsError(
                    f"geometry: layer {layer} has {count} heads and {kv!r} key/value heads; "
                    "give a whole number that divides its heads"
                )

    @property
    def total(self) -> int:
        """Number of softmax query heads in the whole decoder."""
        return sum(self.heads)

    def pool(self, layer: int) -> range:
        """Head indices of ``layer``."""
        return range(self.heads[layer])

    def all_heads(self) -> tuple[Head, ...]:
        """Every head in (layer, head) order."""
        return tuple(Head(layer, h) for layer, n in enumerate(self.heads) for h in range(n))

    def kv_group(self, head: Head) -> int:
        """Key/value head that serves ``head`` (heads of a group are neighbours)."""
        if self.kv_heads is None:
            raise HarnessHeadsError("geometry: key/value heads are unknown for this model; re-run discovery")
        return head.head // (self.heads[head.layer] // self.kv_heads[head.layer])

    def check(self, head: Head, owner: str) -> None:
        """Raise unless ``head`` exists; ``owner`` names the set in the message."""
        layer, index = as_head(head, f"head set {owner!r}")
        if not (0 <= layer < len(self.heads)):
            raise HarnessHeadsError(
                f"head set {owner!r}: layer {layer} is out of range, the model has layers 0..{len(self.heads) - 1}"
            )
        if self.heads[layer] == 0:
            raise HarnessHeadsError(f"head set {owner!r}: layer {layer} has no softmax attention heads")
        if not (0 <= index < self.heads[layer]):
            raise HarnessHeadsError(
                f"head set {owner!r}: head {index} is out of range, layer {layer} has heads 0..{self.heads[layer] - 1}"
            )


def geometry_from_dict(value: Any, source: str) -> Geometry:
    """Read ``geometry`` of a head-set file; ``source`` names the file in errors."""
    shape = mapping(value, f"{source}: geometry")
    layers = entries(shape.get("heads"), f"{source}: geometry.heads")
    if not layers:
        raise HarnessHeadsError(f"{source}: geometry.heads is empty; write the number of heads of every layer")
    kv = shape.get("kv_heads")
    return Geometry(tuple(layers), None if kv is None else tuple(entries(kv, f"{source}: geometry.kv_heads")))


def model_from_dict(value: Any, source: str) -> ModelRef:
    """Read ``model`` of a head-set file; ``source`` names the file in errors."""
    model = mapping(value, f"{source}: model")
    revision = model.get("revision")
    return ModelRef(
        text(model.get("id"), f"{source}: model.id"),
        None if revision is None else text(revision, f"{source}: model.revision"),
    )
