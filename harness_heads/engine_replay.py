"""Record once, replay rows: each head set joins at its first touched layer and runs only the rows that can differ.

Rows before r0 are the same under every set, so their keys and values come from the clean pass. r0 is the first row in
scope that sees a key of the condition, lowered until no earlier row sees a row from r0 on (bidirectional image blocks,
prefix attention). The final layer runs for the last row alone, over keys and values of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness_heads.attention import Handler, handling, installed
from harness_heads.engine_batch import Outcome, logits_of
from harness_heads.engine_clean import Clean
from harness_heads.engine_handlers import Target
from harness_heads.engine_pairs import needs_queries
from harness_heads.engine_prefix import KeysOnly, ReplayHandler
from harness_heads.engine_share import sharing, without_queries
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family
from harness_heads.interventions import Action


class CannotReplay(HarnessHeadsError):
    """The model does between its layers what replay does not know; plain batches are used instead."""


@dataclass(frozen=True)
class Job:
    """One head set under one action (``None`` for the baseline) and the layer where it leaves the clean pass."""

    target: Target
    join: int


def first_difference(action: Action, clean: Clean, way: str) -> int:
    """r0: the first row whose layer outputs can differ from the clean pass; 0 where rows cannot begin in the middle."""
    if way == "full":
        return 0
    masks = {id(mask): mask for mask in clean.record.masks.values()}
    return min(_first_difference(action, mask) for mask in masks.values())


def _first_difference(action: Action, mask: Tensor | None) -> int:
    rows, keys = action.rows, action.keys | action.others
    if action.condition.op == "ablate" or action.condition.numerics == "bf16_round":
        keys = torch.ones_like(keys)  # what these do to a row does not depend on the keys it sees
    if mask is None:
        first_key = int(keys.nonzero()[0])
        return max(action.first_row, first_key)
    visible = _as_bool(mask).cpu()
    sees = rows & (visible & keys[None, :]).any(-1)
    if not bool(sees.any()):
        return action.length - 1
    first = int(sees.nonzero()[0])
    while first:
        ahead = visible[:first, first:].any(-1).nonzero()
        if not len(ahead):
            break
        first = int(ahead[0])
    return first


def _as_bool(mask: Tensor) -> Tensor:
    """(T, T) of a mask (1, 1, T, T)."""
    square = mask[0, 0]
    return square if square.dtype == torch.bool else square > torch.finfo(square.dtype).min / 2


def run_replay(
    model: nn.Module,
    family: Family,
    clean: Clean,
    jobs: Sequence[Job],
    first_row: int,
    length: int,
    watch: Callable[[ReplayHandler], Handler],
) -> Outcome:
    """Replay rows ``first_row`` .. T-1 for every job; jobs come in order of their join layers.

    Args:
        watch: puts what looks on around the handler.

    Raises:
        CannotReplay: if the model's layers are not a plain chain.
    """
    layers, attentions = family.layers(model), family.attention_modules(model)
    start = jobs[0].join
    handler = _handler(clean, jobs, first_row, length)
    hidden: Tensor | None = None
    with torch.no_grad(), installed(model, family), handling(watch(handler)):
        for index in range(start, len(layers)):
            joining = sum(job.join == index for job in jobs)
            if joining:
                rows = clean.inputs[index][:, first_row:].expand(joining, -1, -1)
                hidden = rows if hidden is None else torch.cat([hidden.to(rows.device), rows])
            assert hidden is not None
            last = index == len(layers) - 1
            # sets that join hold the same rows here: their projections are computed once
            with sharing(attentions.get(index) if joining > 1 else None, hidden.shape[0] - joining):
                if last and hidden.shape[1] > 1 and index in clean.record.kept:
                    _final_keys(layers[index], attentions[index], clean, index, hidden, handler, length)
                else:
                    hidden = _call(layers[index], clean, index, hidden, length)
                    hidden = _between(clean, index, hidden, first_row)
            if handler.last_keys is not None:
                hidden = _call(layers[index], clean, index, hidden[:, -1:], length)
        assert hidden is not None
        # torch types every attribute of a module as Tensor | Module
        normed = family.decoder(model).norm(hidden[:, -1])  # type: ignore[operator]
        return Outcome(logits_of(model, family, normed), handler.mass, handler.acted)


def _handler(clean: Clean, jobs: Sequence[Job], first_row: int, length: int) -> ReplayHandler:
    device = next(iter(clean.record.kept.values()))[0].device
    visible: dict[int, Tensor | None] = {}
    known: dict[int, Tensor] = {}
    for layer in clean.record.kept:
        mask = clean.record.masks[layer]
        if mask is not None and id(mask) not in known:
            known[id(mask)] = _as_bool(mask)[first_row:]
        visible[layer] = None if mask is None else known[id(mask)]
    return ReplayHandler([job.target for job in jobs], clean.record.kept, visible, first_row, length, device)


def _final_keys(
    layer: nn.Module,
    attention: nn.Module,
    clean: Clean,
    index: int,
    hidden: Tensor,
    handler: ReplayHandler,
    length: int,
) -> None:
    """Keys and values of all rows in the final layer, for the one row that is needed of it."""
    asked = any(needs_queries(group.action) for group in handler.plan.get(index, []))
    handler.keys_only = True
    try:
        with nullcontext() if asked else without_queries(attention):
            _call(layer, clean, index, hidden, length)
        raise CannotReplay(f"layer {index}: its attention was not reached; replay does not know this layer")
    except KeysOnly as reached:
        handler.last_keys = (reached.key, reached.value)
    finally:
        handler.keys_only = False


def _call(layer: nn.Module, clean: Clean, index: int, hidden: Tensor, length: int) -> Tensor:
    """The layer on rows T-R .. T-1, with the clean pass's arguments cut to them."""
    call, rows = clean.calls[index], hidden.shape[1]
    args = [_cut(f"argument {n + 1}", value, rows, length) for n, value in enumerate(call.args)]
    kwargs = {name: _cut(name, value, rows, length) for name, value in call.kwargs.items()}
    output = layer(hidden, *args, **kwargs)
    result: Tensor = output[0] if isinstance(output, tuple) else output
    return result


def _cut(name: str, value: Any, rows: int, length: int) -> Any:
    """One layer argument cut to the last ``rows`` positions."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if name == "attention_mask":
        # the handler knows what each row sees; layers without heads get the padding mask, which is all ones here
        return None
    if name == "position_embeddings" and isinstance(value, tuple):
        return tuple(part[..., length - rows :, :] for part in value)
    if name == "shared_kv_states":  # a store that this model's layers fill and never read
        return type(value)()
    if isinstance(value, Tensor):
        if name == "position_ids" and value.shape[-1] == length:
            return value[..., length - rows :]
        if name in ("per_layer_input", "argument 1") and value.ndim == 3 and value.shape[:2] == (1, length):
            return value[:, length - rows :]
    raise CannotReplay(f"layer argument {name!r} of type {type(value).__name__} is not known to replay")


def _between(clean: Clean, index: int, hidden: Tensor, first_row: int) -> Tensor:
    """What the decoder does after a layer: deepstack features (Qwen3-VL) are added to image rows."""
    features = clean.decoder_kwargs.get("deepstack_visual_embeds")
    if features is None or index >= len(features):
        if index + 1 in clean.unlinked:
            raise CannotReplay(f"the decoder changes hidden states between layers {index} and {index + 1}")
        return hidden
    where = clean.decoder_kwargs["visual_pos_masks"][0].to(hidden.device)
    before = int(where[:first_row].sum())
    added = features[index][before:].to(hidden.device, hidden.dtype)
    if not len(added):
        return hidden
    hidden = hidden.clone()
    rows = where[first_row:].nonzero()[:, 0]
    hidden[:, rows] = hidden[:, rows] + added
    return hidden


def check_chain(model: nn.Module, family: Family, clean: Clean) -> None:
    """Raise :class:`CannotReplay` unless the layers form a chain that replay knows."""
    if family.replay_way(model) == "never":
        raise CannotReplay("layers share keys and values with earlier ones")
    features = clean.decoder_kwargs.get("deepstack_visual_embeds") or ()
    for index in clean.unlinked:
        if index - 1 >= len(features):
            raise CannotReplay(f"the decoder changes hidden states between layers {index - 1} and {index}")
    for call in clean.calls.values():
        if call.kwargs.get("cache") is not None or call.kwargs.get("past_key_values") is not None:
            raise CannotReplay("the clean pass made a cache")
