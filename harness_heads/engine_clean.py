"""The clean pass: the host's own forward on one prompt, watched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness_heads.attention import forward_arguments, handling, installed
from harness_heads.engine_handlers import Record
from harness_heads.engine_share import final_row_alone
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
        length: tokens of the prompt, T.
        decoder_kwargs: what the text decoder was called with (embeddings with the image features in place).
        calls: per layer, its arguments.  inputs: input (1, T, d) of the layers where sets may join.
        unlinked: layers whose input is not the output of the layer before them.
    """

    logits: Tensor
    record: Record
    length: int
    decoder_kwargs: dict[str, Any]
    calls: dict[int, LayerCall] = field(default_factory=dict)
    inputs: dict[int, Tensor] = field(default_factory=dict)
    unlinked: set[int] = field(default_factory=set)


def clean_pass(
    model: nn.Module, family: Family, inputs: Mapping[str, Any], record: Record, joins: Collection[int] = ()
) -> Clean:
    """Run the host's forward once, with the attention function installed and nothing changed.

    Where rows will be replayed, the baseline is replayed with them; of this pass's own last layer only the final row is
    read, and only that row is computed. Without ``joins`` it is the host's forward to the last bit.

    Args:
        joins: layers whose inputs are kept; from the first of them on the layers' arguments are kept too.
    """
    decoder = family.decoder(model)
    clean = Clean(torch.empty(0), record, inputs["input_ids"].shape[1], {})

    def on_decoder(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args:
            raise HarnessHeadsError(f"family {family.name}: its decoder takes positional arguments; not supported")
        clean.decoder_kwargs = dict(kwargs)

    narrowed: AbstractContextManager[None] = nullcontext()
    hooks = [decoder.register_forward_pre_hook(on_decoder, with_kwargs=True)]
    if joins:
        watch, layers = _Layers(clean, frozenset(joins)), family.layers(model)
        if attention := family.attention_modules(model).get(len(layers) - 1):
            narrowed = final_row_alone(layers[-1], attention)
        for index, layer in enumerate(layers):
            if index >= min(joins):
                hooks.append(layer.register_forward_pre_hook(watch.before(index), with_kwargs=True))
                hooks.append(layer.register_forward_hook(watch.after(index)))
    try:
        with torch.no_grad(), installed(model, family), handling(record), narrowed:
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


@dataclass(eq=False)
class _Layers:
    """Hooks that keep how the decoder calls its layers."""

    clean: Clean
    joins: frozenset[int]
    last: tuple[int, Tensor] | None = None

    def before(self, index: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            rest = dict(kwargs)
            hidden = args[0] if args else rest.pop("hidden_states")
            if index in self.joins:
                self.clean.inputs[index] = hidden
            if self.last is not None and (self.last[0] != index - 1 or self.last[1] is not hidden):
                self.clean.unlinked.add(index)
            self.clean.calls[index] = LayerCall(args[1:], rest)

        return hook

    def after(self, index: int) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            self.last = (index, output[0] if isinstance(output, tuple) else output)

        return hook
