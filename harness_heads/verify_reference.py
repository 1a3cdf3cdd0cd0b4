"""The dense reference of the self-check: eager attention with interventions, written from the definitions.

One matrix of scores per head in the model's own dtype, masks as minus infinity. Its arithmetic shares no code with the
engine's and is slow on purpose; heads and blocks of rows come one after the other, so that long prompts fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness_heads.attention import Call
from harness_heads.heads import Head
from harness_heads.interventions import Action

BLOCK = 1024  # rows of one head whose scores exist at one time


@dataclass(frozen=True, eq=False)
class DenseRow:
    """One batch row: the heads of a set and what is done to them (``None``: nothing)."""

    heads: frozenset[Head] = frozenset()
    action: Action | None = None


@dataclass(eq=False)
class Dense:
    """Attention handler: row b of the batch as ``rows[b]`` says, the last one for all that follow.

    Works for prompts in one forward, and for decode steps over a cache: each layer counts the rows that it has seen.

    Attributes:
        reads: heads and actions of which the mass is read in batch row 0 as it is without them.
        mass: per entry of ``rows``, attention on the action's keys, summed over its prompt rows and heads.
        read: the same per entry of ``reads``.
        keys: per layer the keys of the last call, (B, Hkv, K, D).
    """

    rows: Sequence[DenseRow]
    reads: Sequence[DenseRow] = ()
    seen: dict[int, int] = field(default_factory=dict)
    mass: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    keys: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mass, self.read = [0.0] * len(self.rows), [0.0] * len(self.reads)

    def attend(self, layer: int, call: Call) -> Tensor:
        """(B, Q, H, D), as attention functions return it."""
        queries, keys = call.query.shape[2], call.key.shape[2]
        end = self.seen[layer] = max(self.seen.get(layer, 0) + queries, keys)
        positions = torch.arange(end - queries, end, device=call.query.device)
        key_positions = torch.arange(end - keys, end, device=call.query.device)
        self.keys[layer] = call.key
        out = call.query.new_zeros(*call.query.shape[:3], call.value.shape[-1])
        for batch in range(call.query.shape[0]):
            for head in range(call.query.shape[1]):
                for start in range(0, queries, BLOCK):
                    rows = torch.arange(start, min(start + BLOCK, queries), device=call.query.device)
                    out[batch, head, rows] = self._one(layer, call, batch, head, rows, positions[rows], key_positions)
        return out.transpose(1, 2).contiguous()

    def _one(
        self, layer: int, call: Call, batch: int, head: int, rows: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """Some rows of one head, (R, D)."""
        group = head // (call.query.shape[1] // call.key.shape[1])
        query, key, value = call.query[batch, head, rows], call.key[batch, group], call.value[batch, group]
        half = query.dtype in (torch.float16, torch.bfloat16)  # fused kernels keep scores in float32
        scores = _scores(query.float(), key.float(), call) if half else _scores(query, key, call)
        visible = call.visible(rows, batch)
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0.0)
        for index, read in enumerate(self.reads if batch == 0 else ()):
            if Head(layer, head) in read.heads:
                self.read[index] += _mass(weights, read.action, positions, key_positions)
        number = min(batch, len(self.rows) - 1)
        row = self.rows[number]
        if row.action is not None and Head(layer, head) in row.heads:
            if row.action.condition.numerics == "bf16_round":
                scores = _scores(query.bfloat16(), key.bfloat16(), call)
            touched = _touched(row.action, positions).nonzero()[:, 0]
            changed = _changed(scores[touched], visible[touched], positions[touched], key_positions, row.action)
            weights[touched] = changed.to(weights.dtype)
            self.mass[number] += _mass(weights, row.action, positions, key_positions)
        return weights.to(value.dtype) @ value


def _scores(query: Tensor, key: Tensor, call: Call) -> Tensor:
    scores = (query @ key.T) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    return scores


def _mass(weights: Tensor, action: Action | None, positions: Tensor, key_positions: Tensor) -> float:
    """Weight (R, K) on the action's keys, summed over the prompt rows that it touches."""
    if action is None:
        return 0.0
    rows = _touched(action, positions) & (positions < len(action.rows))
    return float(weights[rows][:, _members(action.keys, key_positions)].double().sum())


def _touched(action: Action, positions: Tensor) -> Tensor:
    length = len(action.rows)
    flags = [bool(action.rows[p]) if p < length else action.generated for p in positions.tolist()]
    return torch.tensor(flags, dtype=torch.bool, device=positions.device)


def _members(flags: Tensor, positions: Tensor) -> Tensor:
    """Flags of the prompt at key positions; generated tokens belong to no set of keys."""
    longer = torch.cat([flags.cpu(), torch.zeros(max(0, int(positions[-1]) + 1 - len(flags)), dtype=torch.bool)])
    return longer.to(positions.device)[positions]


def _changed(scores: Tensor, visible: Tensor, positions: Tensor, key_positions: Tensor, action: Action) -> Tensor:
    """Attention of the touched rows of one head, (R, K), from their scores and what they see."""
    condition = action.condition
    keys, others = _members(action.keys, key_positions), _members(action.others, key_positions)
    if condition.op == "ablate":
        share = visible.double() / visible.double().sum(-1, keepdim=True)
        return share if condition.ablation == "uniform" else torch.zeros_like(share)
    left = visible
    if condition.op == "mask":
        left = visible & ~keys
        if condition.keep_self:
            left = left | (visible & (key_positions[None, :] == positions[:, None]))
    elif condition.beta == "hard":
        tier = torch.where(keys, 2, torch.where(others, 0, 1)).expand_as(visible)
        best = tier.masked_fill(~visible, -1).max(-1, keepdim=True).values
        left = visible & (tier == best)
    else:
        bias = torch.zeros(len(keys), dtype=torch.float64, device=scores.device)
        bias[keys], bias[others] = float(condition.beta or 0), -float(condition.beta or 0)
        scores = scores + bias.to(scores.dtype)
    return scores.to(torch.float64).masked_fill(~left, -torch.inf).softmax(-1).nan_to_num(0.0)
