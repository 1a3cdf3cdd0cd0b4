"""Attention of replayed rows over a key/value prefix that all head sets share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from harness_heads.attention import Call
from harness_heads.engine_handlers import Group, Target, groups_by_layer, note
from harness_heads.engine_pairs import Pairs, attend, mass_alone, softmax_or_zero, wide

CPU_BLOCK = 64  # rows of one call on a CPU: 30 % faster than all at once there, as most of what no row sees is left out
FEW_ROWS = 4  # up to so many rows a shared prefix is cheaper as one product than copied per set


@dataclass(frozen=True, eq=False)
class Prefixed(Call):
    """An attention call whose own keys (B, Hkv, S, D) follow a prefix (1, Hkv, P, D) shared by the batch."""

    prefix_key: Tensor = field(default_factory=lambda: torch.empty(0))
    prefix_value: Tensor = field(default_factory=lambda: torch.empty(0))

    def whole(self) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions, (B, Hkv, P + S, D)."""
        n = self.key.shape[0]
        if not self.prefix_key.shape[2]:
            return self.key, self.value
        return (
            torch.cat([self.prefix_key.expand(n, -1, -1, -1), self.key], 2),
            torch.cat([self.prefix_value.expand(n, -1, -1, -1), self.value], 2),
        )

    def gather(self, batch: Tensor, kv_heads: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """As :meth:`Call.gather`; ``kept`` counts from the first key of the prefix."""
        prefix = self.prefix_key.shape[2]
        if kept is None:
            kept = torch.arange(prefix + self.key.shape[2], device=self.key.device)
        shared, own = kept[kept < prefix], kept[kept >= prefix] - prefix
        own_index = (batch[:, None], kv_heads[:, None], own[None, :])

        def joined(prefix: Tensor, own: Tensor) -> Tensor:
            # whole blocks are copied, first the positions of the few key/value heads, then those per pair
            return torch.cat([prefix[0].index_select(1, shared).index_select(0, kv_heads), own[own_index]], 1)

        return joined(self.prefix_key, self.key), joined(self.prefix_value, self.value)


@dataclass(eq=False)
class KeysOnly(Exception):
    """Leaves a layer at its attention call once its keys and values are known."""

    key: Tensor
    value: Tensor


@dataclass(eq=False)
class ReplayHandler:
    """Handler of the replayed layers: plain attention over prefix and own keys, touched heads overwritten.

    Attributes:
        kept: keys and values of the clean pass per layer, (1, Hkv, T, D).
        visible: per layer what every replayed row sees, bool (R, T); ``None`` = causal.
        first_row: position of the first replayed row, r0.
        length: tokens of the prompt, T.
        mass, acted: as in :class:`harness_heads.engine_handlers.Overwrite`, per target.
    """

    targets: Sequence[Target]
    kept: Mapping[int, tuple[Tensor, Tensor]]
    visible: Mapping[int, Tensor | None]
    first_row: int
    length: int
    device: torch.device
    keys_only: bool = False
    last_keys: tuple[Tensor, Tensor] | None = None
    plan: dict[int, list[Group]] = field(init=False)
    mass: Tensor = field(init=False)
    acted: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.plan = groups_by_layer(self.targets, self.device)
        self.mass = torch.zeros(len(self.targets), dtype=torch.float64, device=self.device)
        self.acted = torch.zeros(len(self.targets), dtype=torch.long, device=self.device)

    def attend(self, layer: int, call: Call) -> Tensor:
        whole_key, whole_value = self.kept[layer]
        prefix = (whole_key[:, :, : self.first_row], whole_value[:, :, : self.first_row])
        own = (call.key, call.value) if self.last_keys is None else self.last_keys
        rows = torch.arange(call.query.shape[2], device=call.query.device)
        positions = self.length - call.query.shape[2] + rows
        visible = self._visible(layer, positions)
        joined = Prefixed(call.query, *own, None, call.scaling, call.softcap, call.base, *prefix)
        if self.keys_only:
            # the outputs of these rows are not needed; their dose is
            self._overwrite(layer, joined, positions, visible, None)
            raise KeysOnly(call.key, call.value)
        causal = self.visible[layer] is None
        out = _few_rows(joined, visible) if len(rows) <= FEW_ROWS else _many_rows(joined, visible, causal)
        self._overwrite(layer, joined, positions, visible, out)
        return out

    def _visible(self, layer: int, positions: Tensor) -> Tensor:
        known = self.visible[layer]
        if known is None:
            return torch.arange(self.length, device=positions.device)[None, :] <= positions[:, None]
        return known.to(positions.device)[positions - self.first_row]

    def _overwrite(self, layer: int, call: Prefixed, positions: Tensor, visible: Tensor, out: Tensor | None) -> None:
        """Overwrite touched heads in ``out``; without one, only note the mass of all but the final row."""
        keys = torch.arange(self.length, device=positions.device)
        for group in (group.on(positions.device) for group in self.plan.get(layer, [])):
            touched = group.action.touches(positions)
            if out is None:
                touched[-1] = False
            rows = touched.nonzero()[:, 0]
            if not len(rows):
                continue
            pairs = Pairs(call, group.batch, group.heads, rows, positions[rows], keys, visible[rows])
            if out is None:
                mass = mass_alone(pairs, group.action)
            else:
                result = attend(pairs, group.action)
                out[group.batch[:, None], rows[None, :], group.heads[:, None]] = result.out
                mass = result.mass
            note(self.mass, self.acted, group.batch, mass, len(rows))


def _few_rows(call: Prefixed, visible: Tensor) -> Tensor:
    """Attention of few rows; scores with the shared prefix are one product for the whole batch. (B, R, H, D)."""
    b, h, r, d = call.query.shape
    kv, groups, prefix = call.key.shape[1], call.groups, call.prefix_key.shape[2]
    dtype = wide(call.query.dtype)
    query = call.query.reshape(b, kv, groups * r, d).to(dtype)
    shared = query.transpose(0, 1).reshape(kv, b * groups * r, d)
    on_prefix = (shared @ call.prefix_key[0].to(dtype).transpose(-1, -2)).view(kv, b, groups * r, prefix)
    on_own = query @ call.key.to(dtype).transpose(-1, -2)
    scores = torch.cat([on_prefix.transpose(0, 1), on_own], -1) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    probabilities = softmax_or_zero(scores, visible.repeat(groups, 1)).to(call.value.dtype)
    of_prefix = probabilities[..., :prefix].transpose(0, 1).reshape(kv, b * groups * r, prefix) @ call.prefix_value[0]
    out = of_prefix.view(kv, b, groups * r, -1).transpose(0, 1) + probabilities[..., prefix:] @ call.value
    return out.reshape(b, h, r, -1).transpose(1, 2).contiguous()


def _many_rows(call: Prefixed, visible: Tensor, causal: bool) -> Tensor:
    """Attention of many rows by the fused kernel over prefix and own keys; (B, R, H, D)."""
    key, value = call.whole()
    rows, prefix = call.query.shape[2], call.prefix_key.shape[2]
    if call.softcap is not None:
        return _written_out(call, key, value, visible)
    if call.query.device.type == "cpu":
        return in_blocks(call, key, value, visible, CPU_BLOCK)
    if causal and 2 * prefix <= rows:
        return padded_causal(call, key, value)
    return in_blocks(call, key, value, visible, rows)


def in_blocks(call: Prefixed, key: Tensor, value: Tensor, visible: Tensor, size: int) -> Tensor:
    """Blocks of ``size`` rows, each over the keys up to the last that one of its rows sees; (B, R, H, D).

    Query heads of a group are folded into the rows of their key/value head, so that no key is repeated.
    """
    b, h, r, d = call.query.shape
    groups = call.groups
    out = call.query.new_empty(b, r, h, value.shape[-1])
    for start in range(0, r, size):
        mask = visible[start : start + size]
        rows, keys = len(mask), _end_of(mask.any(0))
        query = call.query[:, :, start : start + rows].reshape(b, h // groups, groups * rows, d)
        block = F.scaled_dot_product_attention(
            query,
            key[:, :, :keys],
            value[:, :, :keys],
            attn_mask=mask[:, :keys].repeat(groups, 1)[None, None],
            scale=call.scaling,
        ).reshape(b, h, rows, -1)
        has_key = mask.any(-1)
        if not bool(has_key.all()):
            block = block.masked_fill(~has_key[None, None, :, None], 0)
        out[:, start : start + rows] = block.transpose(1, 2)
    return out


def _end_of(seen: Tensor) -> int:
    """One past the last True of (K,); at least 1, as kernels want a key."""
    found = seen.nonzero()
    return int(found[-1]) + 1 if len(found) else 1


def padded_causal(call: Prefixed, key: Tensor, value: Tensor) -> Tensor:
    """The kernel's own causal mask, made to fit by a few dummy rows for the prefix; kernels of a GPU skip by it."""
    prefix = call.prefix_key.shape[2]
    query = F.pad(call.query, (0, 0, prefix, 0))
    out = F.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=call.scaling, enable_gqa=call.groups > 1
    )
    return out[:, :, prefix:].transpose(1, 2).contiguous()


def _written_out(call: Prefixed, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """Bounded scores (Gemma 2) have no fused kernel."""
    assert call.softcap is not None
    b, h, r, d = call.query.shape
    query = call.query.reshape(b, h // call.groups, call.groups * r, d)
    dtype = wide(query.dtype)
    scores = query.to(dtype) @ key.to(dtype).transpose(-1, -2) * call.scaling
    scores = torch.tanh(scores / call.softcap) * call.softcap
    probabilities = softmax_or_zero(scores, visible.repeat(call.groups, 1)).to(value.dtype)
    return (probabilities @ value).reshape(b, h, r, -1).transpose(1, 2).contiguous()
