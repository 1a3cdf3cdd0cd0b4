"""The dense reference of the self-check: eager attention with interventions, written from the definitions.

One (H, Q, K) matrix of scores per layer and prompt in the model's own dtype, masks as minus infinity. Its arithmetic
shares no code with the engine's and is slow on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness_heads.attention import Call
from harness_heads.heads import Head
from harness_heads.interventions import Action


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
        outs = []
        for batch in range(call.query.shape[0]):
            number = min(batch, len(self.rows) - 1)
            row = self.rows[number]
            query, key = call.query[batch], _for_heads(call, call.key[batch])
            half = query.dtype in (torch.float16, torch.bfloat16)  # fused kernels keep scores in float32
            scores = _scores(query.float(), key.float(), call) if half else _scores(query, key, call)
            visible = call.visible(torch.arange(queries, device=query.device), batch)
            weights = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0.0)
            for index, read in enumerate(self.reads if batch == 0 else ()):
                self.read[index] += _mass(weights, layer, read, positions, key_positions)
            if row.action is not None and row.action.condition.numerics == "bf16_round":
                scores = _scores(query.bfloat16(), key.bfloat16(), call)
            _change(weights, scores, visible, layer, row, positions, key_positions)
            self.mass[number] += _mass(weights, layer, row, positions, key_positions)
            outs.append(weights.to(call.value.dtype) @ _for_heads(call, call.value[batch]))
        return torch.stack(outs).transpose(1, 2).contiguous()


def _for_heads(call: Call, kept: Tensor) -> Tensor:
    """Keys or values (Hkv, K, D) repeated for the query heads of their groups, (H, K, D)."""
    return kept.repeat_interleave(call.query.shape[1] // kept.shape[0], dim=0)


def _scores(query: Tensor, key: Tensor, call: Call) -> Tensor:
    scores = (query @ key.transpose(1, 2)) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    return scores


def _change(
    weights: Tensor,
    scores: Tensor,
    visible: Tensor,
    layer: int,
    row: DenseRow,
    positions: Tensor,
    key_positions: Tensor,
) -> None:
    """Put what the action makes of the row's heads into ``weights`` (H, Q, K)."""
    if row.action is None:
        return
    rows = _touched(row.action, positions).nonzero()[:, 0]
    for head in _heads_in(row, layer) if len(rows) else ():
        changed = _changed(scores[head, rows], visible[rows], positions[rows], key_positions, row.action)
        weights[head, rows] = changed.to(weights.dtype)


def _heads_in(row: DenseRow, layer: int) -> list[int]:
    return sorted(head.head for head in row.heads if head.layer == layer)


def _mass(weights: Tensor, layer: int, row: DenseRow, positions: Tensor, key_positions: Tensor) -> float:
    """Weight of the row's heads on its action's keys, summed over the prompt rows that the action touches."""
    if row.action is None:
        return 0.0
    rows = _touched(row.action, positions) & (positions < len(row.action.rows))
    keys = _members(row.action.keys, key_positions)
    return sum(float(weights[head][rows][:, keys].double().sum()) for head in _heads_in(row, layer))


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
