"""The dense reference of the self-check: eager attention with interventions, written from the definitions.

One (H, Q, K) matrix of scores per layer and prompt in the model's own dtype, masks as minus infinity. It shares no code
with the engine and is slow on purpose.
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
    """

    rows: Sequence[DenseRow]
    seen: dict[int, int] = field(default_factory=dict)

    def attend(self, layer: int, call: Call) -> Tensor:
        """(B, Q, H, D), as attention functions return it."""
        queries, keys = call.query.shape[2], call.key.shape[2]
        end = self.seen[layer] = max(self.seen.get(layer, 0) + queries, keys)
        positions = torch.arange(end - queries, end, device=call.query.device)
        key_positions = torch.arange(end - keys, end, device=call.query.device)
        outs = []
        for batch in range(call.query.shape[0]):
            row = self.rows[min(batch, len(self.rows) - 1)]
            outs.append(_attend(call, batch, layer, row, positions, key_positions))
        return torch.stack(outs).transpose(1, 2).contiguous()


def _attend(call: Call, batch: int, layer: int, row: DenseRow, positions: Tensor, key_positions: Tensor) -> Tensor:
    """(H, Q, D) of one batch row."""
    groups = call.query.shape[1] // call.key.shape[1]
    query = call.query[batch]
    key, value = (kept[batch].repeat_interleave(groups, dim=0) for kept in (call.key, call.value))
    half = query.dtype in (torch.float16, torch.bfloat16)  # fused kernels keep scores in float32
    scores = _scores(query.float(), key.float(), call) if half else _scores(query, key, call)
    visible = call.visible(torch.arange(len(positions), device=query.device), batch)
    probabilities = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0.0)
    touched = sorted(head.head for head in row.heads if head.layer == layer)
    if row.action is not None and touched:
        if row.action.condition.numerics == "bf16_round":
            scores = _scores(query.bfloat16(), key.bfloat16(), call)
        rows = _touched(row.action, positions).nonzero()[:, 0]
        for head in touched if len(rows) else ():
            changed = _changed(scores[head, rows], visible[rows], positions[rows], key_positions, row.action)
            probabilities[head, rows] = changed.to(probabilities.dtype)
    return probabilities.to(value.dtype) @ value


def _scores(query: Tensor, key: Tensor, call: Call) -> Tensor:
    scores = (query @ key.transpose(1, 2)) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    return scores


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
