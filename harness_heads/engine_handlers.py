"""What acts inside the attention function: overwriting touched heads, recording a clean pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness_heads.attention import Call
from harness_heads.engine_pairs import Pairs, attend, masses_untouched
from harness_heads.heads import Head
from harness_heads.interventions import Action
from harness_heads.reading import region_sums

UNMOVED = 1e-6  # relative change of mass that is rounding and not a dose


@dataclass(frozen=True, eq=False)
class Target:
    """One row of a batch: the heads of a set and what is done to them (``None``: nothing)."""

    heads: tuple[Head, ...]
    action: Action | None


@dataclass(eq=False)
class Group:
    """Pairs of one layer that share an action: batch rows and heads, long (N,)."""

    action: Action
    batch: Tensor
    heads: Tensor

    def on(self, device: torch.device) -> Group:
        """The same group on ``device``: layers of one model may lie on several."""
        if self.batch.device == device:
            return self
        return Group(self.action.to(device), self.batch.to(device), self.heads.to(device))


def groups_by_layer(targets: Sequence[Target], device: torch.device) -> dict[int, list[Group]]:
    """The (batch row, head) pairs of every layer, gathered by action."""
    gathered: dict[int, dict[int, tuple[Action, list[int], list[int]]]] = {}
    for row, target in enumerate(targets):
        if target.action is None:
            continue
        for layer, head in target.heads:
            slot = gathered.setdefault(layer, {}).setdefault(id(target.action), (target.action, [], []))
            slot[1].append(row)
            slot[2].append(head)
    return {
        layer: [
            Group(action.to(device), torch.tensor(batch, device=device), torch.tensor(heads, device=device))
            for action, batch, heads in slots.values()
        ]
        for layer, slots in gathered.items()
    }


def moved_beside(action: Action, keys: Tensor, others: Tensor, alone: Tensor) -> Tensor:
    """Whether attention moved where the mass on the action's keys did not; bool, shape of ``keys``.

    Steering lowers the other image tokens even where a row attends to none of the target's (a sliding window); a mask
    that keeps the own key leaves a row that attends to nothing but the image with mass 1 before and after.

    Args:
        keys, others: mass without the action on its keys and on what it lowers; (..., R).
        alone: rows that see at most one of the keys; bool (R,).
    """
    condition = action.condition
    if condition.op == "steer":
        return (keys <= UNMOVED) & (others > UNMOVED) & (others < 1 - UNMOVED)
    if condition.op == "mask" and condition.keep_self:
        return (keys > UNMOVED) & ~alone
    return torch.zeros_like(keys, dtype=torch.bool)


def note(mass: Tensor, acted: Tensor, batch: Tensor, found: Tensor, rows: int) -> None:
    """Add what pairs did to the sums of their batch rows: masses (N, R) and touched rows."""
    batch = batch.to(mass.device)
    mass.index_add_(0, batch, found.sum(-1).to(mass.device, torch.float64))
    acted.index_add_(0, batch, torch.full_like(batch, rows))


@dataclass(eq=False)
class Overwrite:
    """Overwrites the outputs of touched heads, row b of the batch under ``targets[b]``.

    Attributes:
        length: tokens that the running forward's last row ends, cached ones included.
        mass: attention on the action's keys per batch row, summed over touched prompt rows and heads; float64 (B,).
        acted: (row, key or output) pairs touched so far, per batch row; long (B,).
        prove: look for movement: where no clean pass gives the mass before, compare each touched head with what it
            would have attended to on the same input, until every batch row has moved some.
        moved: batch rows that moved attention, where that is looked for; ablation moves none and counts at once.
    """

    targets: Sequence[Target]
    device: torch.device
    length: int
    prove: bool = False
    plan: dict[int, list[Group]] = field(init=False)
    mass: Tensor = field(init=False)
    acted: Tensor = field(init=False)
    moved: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.plan = groups_by_layer(self.targets, self.device)
        self.mass = torch.zeros(len(self.targets), dtype=torch.float64, device=self.device)
        self.acted = torch.zeros(len(self.targets), dtype=torch.long, device=self.device)
        still = (t.action is None or not t.heads or t.action.condition.op == "ablate" for t in self.targets)
        self.moved = {row for row, done in enumerate(still) if done}

    def attend(self, layer: int, call: Call) -> Tensor:
        out = call.base()
        groups = self.plan.get(layer)
        if not groups:
            return out
        queries, keys = call.query.shape[2], call.key.shape[2]
        # counted from the end: a sliding cache drops early keys, and a decoder may drop rows that nothing needs
        positions = torch.arange(queries, device=out.device) + (self.length - queries)
        key_positions = torch.arange(keys, device=out.device) + (self.length - keys)
        for group in (group.on(out.device) for group in groups):
            rows = group.action.touches(positions).nonzero()[:, 0]
            if not len(rows):
                continue
            pairs = Pairs(
                call,
                group.batch,
                group.heads,
                rows,
                positions[rows],
                key_positions,
                call.visible(rows, int(group.batch[0])),
            )
            result = attend(pairs, group.action)
            out[group.batch[:, None], rows[None, :], group.heads[:, None]] = result.out
            in_prompt = positions[rows] < group.action.length
            note(self.mass, self.acted, group.batch, result.mass[:, in_prompt], len(rows))
            if self.prove and len(self.moved) < len(self.targets):
                self._look_for_movement(pairs, group, result.mass)
        return out

    def _look_for_movement(self, pairs: Pairs, group: Group, after: Tensor) -> None:
        before, others = masses_untouched(pairs, group.action)
        shifted = (before - after).abs() > UNMOVED * torch.maximum(before, after)
        alone = (pairs.visible & group.action.keys_at(pairs.key_positions)).sum(-1) < 2
        shifted |= moved_beside(group.action, before, others, alone)
        self.moved |= set(group.batch[shifted.any(-1)].tolist())


@dataclass(eq=False)
class Record:
    """Records a clean pass: attention of ``rows`` summed over key sets, and keys and values from some layer on.

    Attributes:
        layers: layers whose attention is read.
        rows: query positions; long (R,).
        keys: membership of the key sets; float (T, G).
        masses: per layer, attention (H, R, G).
        keep_from: first layer whose keys and values are kept; ``None`` keeps none.
        kept: per layer, key and value after rotary embedding, (1, Hkv, T, D).
        calls: layers that were seen.
    """

    layers: frozenset[int]
    rows: Tensor
    keys: Tensor
    keep_from: int | None = None
    masses: dict[int, Tensor] = field(default_factory=dict)
    kept: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    masks: dict[int, Tensor | None] = field(default_factory=dict)

    def attend(self, layer: int, call: Call) -> Tensor:
        if layer in self.layers and self.keys.shape[1]:
            self.masses[layer] = region_sums(call, self.rows.to(call.query.device), self.keys)
        if self.keep_from is not None and layer >= self.keep_from:
            self.kept[layer] = (call.key, call.value)
        self.masks[layer] = call.mask
        return call.base()
