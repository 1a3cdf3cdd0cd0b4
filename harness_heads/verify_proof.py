"""What has been proved on a loaded model, by kind of condition and layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from harness_heads.conditions import Condition
from harness_heads.heads import Head, HeadSet


@dataclass(frozen=True)
class Proof:
    """What was proved.

    Attributes:
        conditions: names of the conditions that were tried, one of every kind; ``(generated)`` behind those that were
            tried in ``generate``, prompt and decode step.
        layers: decoder layers in which touched heads were seen to change.
        heads: how many heads were touched.
        untouched_bit_equal: whether every untouched head of a touched layer stayed bit-equal on the same input; false
            where text was generated alone, for which they are held to the reference.
        reference_gap: largest difference of log-probabilities between engine and dense reference.
        effect: largest change of log-probabilities that the reference itself shows against no intervention.
        tolerance: what the gap was held to.
        local_gap: largest difference of a touched head's output to the reference on the same input, as a share of the
            largest value.
        weak: conditions whose effect on the heads' outputs was not at least twice the tolerance: there the proof could
            not have told acting from not acting.
        dtype: the model's.
    """

    conditions: tuple[str, ...]
    layers: tuple[int, ...]
    heads: int
    untouched_bit_equal: bool
    reference_gap: float
    effect: float
    tolerance: float
    local_gap: float
    weak: tuple[str, ...]
    dtype: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {**asdict(self), "conditions": list(self.conditions), "layers": list(self.layers), "weak": [*self.weak]}


@dataclass(frozen=True)
class Shown:
    """What one condition showed on one set."""

    name: str
    gap: float
    effect: float
    tolerance: float
    local_gap: float = 0.0
    local_effect: float = 0.0
    local_tolerance: float = 0.0

    @property
    def weak(self) -> bool:
        return self.local_effect < 2 * self.local_tolerance


@dataclass(eq=False)
class Ledger:
    """What has been proved on one engine so far: kinds of conditions, and for each the layers."""

    layers: dict[tuple[str, Condition], set[int]] = field(default_factory=dict)
    heads: set[Head] = field(default_factory=set)
    shown: list[Shown] = field(default_factory=list)
    dtype: torch.dtype = torch.float32

    def missing(self, way: str, sets: Sequence[HeadSet], condition: Condition) -> list[HeadSet]:
        """Sets that have yet to be tried under this kind of condition: each names a layer in which none was."""
        layers, chosen = set(self.layers.get((way, kind(condition)), ())), []
        for one in sets:
            named = {head.layer for head in one}
            if not named <= layers:
                chosen.append(one)
                layers |= named
        return chosen

    def enter(self, way: str, sets: Sequence[HeadSet], condition: Condition, shown: Shown) -> None:
        """Note that ``condition`` was proved on ``sets``."""
        known = self.layers.setdefault((way, kind(condition)), set())
        known |= {head.layer for one in sets for head in one}
        self.heads |= {head for one in sets for head in one}
        self.shown.append(shown)

    @property
    def proof(self) -> Proof | None:
        """All of it together, ``None`` before the first."""
        if not self.shown:
            return None
        names = dict.fromkeys(one.name for one in self.shown)
        strong = {one.name for one in self.shown if not one.weak}
        return Proof(
            tuple(names),
            tuple(sorted(set[int]().union(*self.layers.values()))),
            len(self.heads),
            # a head that changes beside the set is an error, so what was looked at held
            any(way == "prompt" for way, _ in self.layers),
            max(one.gap for one in self.shown),
            max(one.effect for one in self.shown),
            max(one.tolerance for one in self.shown),
            max(one.local_gap for one in self.shown),
            tuple(name for name in names if name not in strong),
            str(self.dtype).removeprefix("torch."),
        )


def kind(condition: Condition) -> Condition:
    """What conditions must share for the proof of one to hold for the other: all but which region they name."""
    return condition if condition.keys in ("image", "text", "") else replace(condition, keys="region")
