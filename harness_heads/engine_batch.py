"""Plain batches: every row of the prompt for every head set, the vision tower once.

The decoder is called again with what the clean pass called it with, repeated once per head set. It needs nothing of a
family but that, and is the fallback and the yardstick of the replaying engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness_heads.attention import Handler, handling, installed
from harness_heads.engine_handlers import Overwrite, Target
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family

# arguments of decoders that embed images themselves (Phi-4), stacked over all images of the batch
_STACKED = ("image_pixel_values", "image_sizes", "image_attention_mask")


class Outcome(NamedTuple):
    """Per batch row: logits of the final row (B, V), summed mass (B,) and touched pairs (B,)."""

    logits: Tensor
    mass: Tensor
    acted: Tensor


def run_batch(
    model: nn.Module,
    family: Family,
    decoder_kwargs: Mapping[str, Any],
    targets: Sequence[Target],
    watch: Callable[[Overwrite], Handler],
) -> Outcome:
    """One batch: row b is the prompt under ``targets[b]``; ``watch`` puts what looks on around the handler."""
    decoder = family.decoder(model)
    given = decoder_kwargs.get("inputs_embeds")
    prompt: Tensor = decoder_kwargs["input_ids"] if given is None else given
    overwrite = Overwrite(targets, prompt.device, prompt.shape[1])
    repeated = repeat(decoder_kwargs, len(targets))
    with torch.no_grad(), installed(model, family), handling(watch(overwrite)):
        hidden = decoder(**repeated).last_hidden_state[:, -1]
        return Outcome(logits_of(model, family, hidden), overwrite.mass, overwrite.acted)


def logits_of(model: nn.Module, family: Family, hidden: Tensor) -> Tensor:
    """Logits (B, V) of normed final hidden states (B, d), final bound included (Gemma 2)."""
    # torch types every attribute of a module as Tensor | Module
    logits: Tensor = model.get_output_embeddings()(hidden)  # type: ignore[operator]
    bound = getattr(family.decoder(model).config, "final_logit_softcapping", None)
    return logits if bound is None else torch.tanh(logits / bound) * bound


def repeat(value: Any, n: int, name: str = "") -> Any:
    """A decoder argument of batch 1, repeated for a batch of n; views where possible.

    Raises:
        HarnessHeadsError: for a tensor whose batch axis is not known.
    """
    if isinstance(value, Mapping):
        return {key: repeat(item, n, str(key)) for key, item in value.items()}
    if name == "deepstack_visual_embeds" and value is not None:  # features of all image rows of the batch, stacked
        return [features.repeat(n, 1) for features in value]
    if isinstance(value, list | tuple):
        return type(value)(repeat(item, n, name) for item in value)
    if not isinstance(value, Tensor):
        if value is not None and not isinstance(value, bool | int | float | str):
            raise HarnessHeadsError(f"decoder argument {name!r} of type {type(value).__name__} cannot be repeated")
        return value
    if value.ndim == 0 or name == "cache_position":
        return value
    if name in _STACKED:
        return value.repeat(n, *[1] * (value.ndim - 1))
    axis = value.ndim - 2 if name == "position_ids" else 0
    if value.shape[axis] != 1:
        raise HarnessHeadsError(f"decoder argument {name!r} of shape {tuple(value.shape)} has no batch axis of 1")
    shape = list(value.shape)
    shape[axis] = n
    return value.expand(shape)
