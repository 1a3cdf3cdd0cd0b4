"""The clean pass: the host's own forward on one prompt, watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness_heads.attention import forward_arguments, handling, installed
from harness_heads.engine_handlers import Record
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family


@dataclass(eq=False)
class LayerCall:
    """How the decoder called one layer: everything but the hidden states, which are kept on their own."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False)
class Clean:
    """What a clean pass leaves behind.

    Attributes:
        logits: of the final row; (V,), in the model's dtype.
        record: attention masses, and keys and values where they were asked for.
        decoder_kwargs: what the text decoder was called with (embeddings with the image features in place).
        calls: per layer, its arguments.  inputs: per layer, its input (1, T, d).  outputs: per layer, its output.
    """

    logits: Tensor
    record: Record
    decoder_kwargs: dict[str, Any]
    calls: dict[int, LayerCall] = field(default_factory=dict)
    inputs: dict[int, Tensor] = field(default_factory=dict)
    outputs: dict[int, Tensor] = field(default_factory=dict)


def clean_pass(
    model: nn.Module, family: Family, inputs: Mapping[str, Any], record: Record, keep_from: int | None = None
) -> Clean:
    """Run the host's forward once, with the attention function installed and nothing changed.

    Args:
        keep_from: first layer whose arguments, input and output are kept; ``None`` keeps none.
    """
    decoder = family.decoder(model)
    clean = Clean(torch.empty(0), record, {})

    def on_decoder(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args:
            raise HarnessHeadsError(f"family {family.name}: its decoder takes positional arguments; not supported")
        clean.decoder_kwargs = dict(kwargs)

    hooks = [decoder.register_forward_pre_hook(on_decoder, with_kwargs=True)]
    if keep_from is not None:
        for index, layer in enumerate(family.layers(model)):
            if index >= keep_from:
                hooks.append(layer.register_forward_pre_hook(_keep_call(clean, index), with_kwargs=True))
                hooks.append(layer.register_forward_hook(_keep_output(clean, index)))
    try:
        with torch.no_grad(), installed(model, family), handling(record):
            output = model(**forward_arguments(model, inputs))
    finally:
        for hook in hooks:
            hook.remove()
    clean.logits = output.logits[0, -1]
    silent = record.layers - set(record.masks)
    if silent:
        raise HarnessHeadsError(
            f"layer {min(silent)}: its attention never ran through the installed function; this model does not use "
            "transformers' attention interface there"
        )
    return clean


def _keep_call(clean: Clean, index: int) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        rest = dict(kwargs)
        hidden = args[0] if args else rest.pop("hidden_states")
        clean.inputs[index] = hidden
        clean.calls[index] = LayerCall(args[1:], rest)

    return hook


def _keep_output(clean: Clean, index: int) -> Any:
    def hook(_: nn.Module, __: Any, output: Any) -> None:
        clean.outputs[index] = output[0] if isinstance(output, tuple) else output

    return hook
