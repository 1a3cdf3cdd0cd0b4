"""Attention of single (batch row, head) pairs under an action: the arithmetic of every intervention.

N pairs at once share rows, keys and the action. Scores are formed in float32 (float64 for float64 models), and
probabilities multiply the values in the model's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from harness_heads.attention import Call
from harness_heads.interventions import Action

BLOCK = 128  # query rows whose scores exist at one time


@dataclass(frozen=True, eq=False)
class Pairs:
    """N (batch row, head) pairs of one attention call.

    Attributes:
        call: the attention call.
        batch, heads: which batch row and query head each pair is; long (N,).
        rows: indices into the call's query axis; long (R,).
        row_positions, key_positions: positions in the prompt of those rows and of all keys; long (R,) and (K,).
        visible: what the model itself lets the rows see; bool (R, K).
    """

    call: Call
    batch: Tensor
    heads: Tensor
    rows: Tensor
    row_positions: Tensor
    key_positions: Tensor
    visible: Tensor

    def query(self, block: slice = slice(None)) -> Tensor:
        """(N, R, D)."""
        return self.call.query[self.batch[:, None], self.heads[:, None], self.rows[block][None, :]]

    def keys_values(self, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values, (N, K, D) or those at ``kept`` alone; the group's key/value head serves its query heads."""
        return self.call.gather(self.batch, self.heads // self.call.groups, kept)

    def zeros(self) -> Tensor:
        """An output of zeros, (N, R, D)."""
        return self.call.value.new_zeros(len(self.heads), len(self.rows), self.call.value.shape[-1])


class Result(NamedTuple):
    """out: (N, R, D) in the model's dtype.  mass: (N, R) attention on the action's keys, in float32 or float64."""

    out: Tensor
    mass: Tensor


def attend(pairs: Pairs, action: Action) -> Result:
    """Outputs of the pairs under ``action``."""
    condition = action.condition
    if condition.op == "ablate" and condition.ablation == "zero":
        out = pairs.zeros()
        return Result(out, out.new_zeros(out.shape[:2], dtype=wide(out.dtype)))
    pure_cut = condition.op == "mask" or condition.beta == "hard"
    if pure_cut and condition.numerics == "float32" and pairs.call.softcap is None:
        return _cut(pairs, action)
    return _explicit(pairs, action)


def mass_alone(pairs: Pairs, action: Action) -> Tensor:
    """Mass (N, R) as :func:`attend` gives it, without outputs; queries are looked at only if :func:`needs_queries`."""
    if needs_queries(action):
        return attend(pairs, action).mass
    dtype = wide(pairs.call.value.dtype)
    if action.condition.op != "steer":
        return torch.zeros(len(pairs.heads), len(pairs.rows), dtype=dtype, device=pairs.rows.device)
    on_keys = pairs.visible & action.keys_at(pairs.key_positions)[None, :]
    return on_keys.any(-1).to(dtype).expand(len(pairs.heads), -1)


def masses_untouched(pairs: Pairs, action: Action) -> Tensor:
    """Masses (2, N, R) on the action's keys and on what it lowers, as they are without it, on the same input."""
    key, _ = pairs.keys_values()
    on = torch.stack([action.keys_at(pairs.key_positions), action.others_at(pairs.key_positions)])
    masses = []
    for start in range(0, len(pairs.rows), BLOCK):
        block = slice(start, start + BLOCK)
        scores = scores_of(pairs.query(block), key, pairs.call.scaling, pairs.call.softcap)
        masses.append(softmax_or_zero(scores, pairs.visible[block]) @ on.to(scores.dtype).T)
    return torch.cat(masses, 1).movedim(-1, 0)


def needs_queries(action: Action) -> bool:
    """Whether the mass on the action's keys depends on scores; after a plain cut it is 0 or 1 by construction."""
    condition = action.condition
    if condition.op == "ablate":
        return condition.ablation != "zero"
    return condition.keep_self if condition.op == "mask" else condition.beta != "hard"


def _cut(pairs: Pairs, action: Action) -> Result:
    """A pure cut: the fused kernel over the keys that are left to some row."""
    allowed = action.allowed(pairs.row_positions, pairs.key_positions, pairs.visible)
    kept = allowed.any(0).nonzero()[:, 0]
    if not len(kept):
        out = pairs.zeros()
        return Result(out, out.new_zeros(out.shape[:2], dtype=wide(out.dtype)))
    allowed = allowed[:, kept]
    query, (key, value) = pairs.query(), pairs.keys_values(kept)
    out = F.scaled_dot_product_attention(
        query[:, None], key[:, None], value[:, None], attn_mask=allowed[None, None], scale=pairs.call.scaling
    )[:, 0]
    has_key = allowed.any(-1)
    if not bool(has_key.all()):
        # kernels differ on rows without keys (zero, NaN, mean of all values): zero by definition here
        out = out.masked_fill(~has_key[None, :, None], 0)
    on_keys = allowed & action.keys_at(pairs.key_positions[kept])[None, :]
    return Result(out, _cut_mass(query, key, allowed, on_keys, action, pairs.call.scaling))


def _cut_mass(query: Tensor, key: Tensor, allowed: Tensor, on_keys: Tensor, action: Action, scaling: float) -> Tensor:
    """Mass on the action's keys after a cut; probabilities are formed only where it is not 0 or 1 by construction."""
    n, r, _ = query.shape
    dtype = wide(query.dtype)
    if action.condition.op == "steer":  # a row that sees its target attends to nothing else
        return on_keys.any(-1).to(dtype).expand(n, r)
    mass = torch.zeros(n, r, dtype=dtype, device=query.device)
    rows = on_keys.any(-1).nonzero()[:, 0]  # keep_self alone leaves a masked key
    if len(rows):
        probabilities = softmax_or_zero(scores_of(query[:, rows], key, scaling, None), allowed[rows])
        mass[:, rows] = (probabilities * on_keys[rows]).sum(-1)
    return mass


def _explicit(pairs: Pairs, action: Action) -> Result:
    """Scores, bias and softmax written out, a block of rows at a time."""
    key, value = pairs.keys_values()
    on_keys = action.keys_at(pairs.key_positions)
    rounded = action.condition.numerics == "bf16_round"
    outs, masses = [], []
    for start in range(0, len(pairs.rows), BLOCK):
        block = slice(start, start + BLOCK)
        probabilities = _probabilities(pairs, action, block, key)
        masses.append((probabilities * on_keys).sum(-1))
        if rounded:
            outs.append((probabilities.bfloat16() @ value.bfloat16()).to(value.dtype))
        else:
            outs.append(probabilities.to(value.dtype) @ value)
    return Result(torch.cat(outs, 1), torch.cat(masses, 1))


def _probabilities(pairs: Pairs, action: Action, block: slice, key: Tensor) -> Tensor:
    """(N, block, K) in float32 or float64."""
    condition, visible, call = action.condition, pairs.visible[block], pairs.call
    if condition.op == "ablate":  # uniform over what the row sees
        share = visible.to(wide(key.dtype))
        return (share / share.sum(-1, keepdim=True).clamp(min=1)).expand(len(pairs.heads), -1, -1)
    query = pairs.query(block)
    if condition.numerics == "bf16_round":  # product, scaling and sum are each rounded, as the public eager code does
        scores = _softcapped(query.bfloat16() @ key.bfloat16().transpose(-1, -2) * call.scaling, call.softcap)
    else:
        scores = scores_of(query, key, call.scaling, call.softcap)
    allowed = visible
    if condition.op == "steer" and condition.beta != "hard":
        scores = scores + action.bias(pairs.key_positions).to(scores.dtype)
    else:
        allowed = action.allowed(pairs.row_positions[block], pairs.key_positions, visible)
    return softmax_or_zero(scores.to(wide(key.dtype)), allowed)


def softmax_or_zero(scores: Tensor, allowed: Tensor) -> Tensor:
    """Softmax over the allowed keys; rows without any are all zero."""
    probabilities = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return probabilities.masked_fill(~allowed.any(-1, keepdim=True), 0)


def scores_of(query: Tensor, key: Tensor, scaling: float, softcap: float | None) -> Tensor:
    """Scaled (and bounded) scores (..., R, K) in float32 or float64."""
    dtype = wide(query.dtype)
    return _softcapped(query.to(dtype) @ key.to(dtype).transpose(-1, -2) * scaling, softcap)


def _softcapped(scores: Tensor, softcap: float | None) -> Tensor:
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of scores and masses: float64 for float64 models, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
