"""Reading attention: chosen rows, summed over regions of keys, inside the attention function; never T x T."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness_heads.attention import Call, forward_arguments, handling, installed
from harness_heads.engine_pairs import BLOCK, softmax_or_zero, wide
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family


def probabilities(call: Call, rows: Tensor, batch: int = 0) -> Tensor:
    """Attention of some query rows of one batch row; (H, R, K) in float32 or float64.

    Queries of a group share their key/value head, so they are folded into its rows instead of repeating the keys.
    """
    heads, kv = call.query.shape[1], call.key.shape[1]
    dtype = wide(call.query.dtype)
    query = call.query[batch][:, rows].to(dtype)  # (H, R, D)
    folded = query.reshape(kv, -1, query.shape[-1])
    scores = folded @ call.key[batch].to(dtype).transpose(-1, -2) * call.scaling
    scores = scores.view(heads, len(rows), -1)
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    return softmax_or_zero(scores, call.visible(rows, batch))


def region_sums(call: Call, rows: Tensor, regions: Tensor, batch: int = 0) -> Tensor:
    """Attention of some rows summed over regions.

    Args:
        rows: indices into the query axis; long (R,).
        regions: membership of keys; bool or float (K, G).

    Returns:
        (H, R, G) in float32 or float64.
    """
    weights = regions.to(call.query.device, wide(call.query.dtype))
    blocks = [probabilities(call, block, batch) @ weights for block in torch.split(rows, BLOCK)]
    return torch.cat(blocks, 1)


@dataclass(eq=False)
class _Reader:
    """Reads one prompt's rows in every layer and changes nothing."""

    rows: Tensor
    regions: Tensor
    sums: dict[int, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, call: Call) -> Tensor:
        if call.query.shape[0] != 1 or call.query.shape[2] != call.key.shape[2]:
            raise HarnessHeadsError("reading: one prompt in one forward pass, without a cache")
        self.sums[layer] = region_sums(call, self.rows, self.regions)
        return call.base()


def read_rows(
    model: nn.Module, family: Family, inputs: Mapping[str, Any], rows: Tensor, regions: Sequence[Tensor]
) -> Tensor:
    """Attention of chosen rows of one prompt, summed over regions of keys, in one forward pass.

    Args:
        rows: query positions; long (R,).
        regions: key positions, one long tensor per region.

    Returns:
        float32 (layers, heads, R, regions); zeros where a layer has no softmax heads, or fewer than the widest layer.
    """
    device, length = inputs["input_ids"].device, inputs["input_ids"].shape[1]
    member = torch.zeros(length, len(regions), dtype=torch.bool)
    for column, positions in enumerate(regions):
        member[positions, column] = True
    reader = _Reader(rows.to(device), member.to(device))
    with torch.no_grad(), installed(model, family), handling(reader):
        model(**forward_arguments(model, inputs))
    heads = family.geometry(model).heads
    out = torch.zeros(len(heads), max(heads), len(rows), len(regions))
    for layer, count in enumerate(heads):
        if count and layer not in reader.sums:
            raise HarnessHeadsError(f"layer {layer}: its attention never ran through the installed function")
        if count:
            out[layer, :count] = reader.sums[layer].float().cpu()
    return out
