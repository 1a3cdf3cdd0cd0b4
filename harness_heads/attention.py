"""The attention function that interventions act through, and its mask function.

transformers looks the function up by name at every attention forward. We register one name per base kernel (``sdpa``,
``eager``) with the mask function of that kernel under the same name (without it padding and sliding windows would be
lost in silence), and put the name on the text decoder's config alone: vision towers keep theirs. The function computes
the base kernel for all heads; a :class:`Handler` then reads or overwrites chosen rows and heads. Without a handler, and
for every module that is not a registered decoder layer, the result is the base kernel's own, bit for bit.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family

BASES = ("sdpa", "eager")
_PREFIX = "harness_heads_"


@dataclass(frozen=True, eq=False)
class Call:
    """One attention forward of one decoder layer.

    Attributes:
        query: (B, H, Q, D), after rotary embedding.  key, value: (B, Hkv, K, D), cache included, not repeated.
        mask: what the mask function made: bool (B, 1, Q, K), True = visible; float, 0 = visible; or ``None`` = causal.
        scaling: factor of the scores.  softcap: bound of the scores (Gemma 2), or ``None``.
        base: computes the base kernel for these arguments; (B, Q, H, D).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    softcap: float | None
    base: Callable[[], Tensor] = field(repr=False)

    def gather(self, batch: Tensor, kv_heads: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """Keys and values of some (batch row, key/value head) pairs, (N, K, D), or of their keys at ``kept`` alone."""
        if kept is None:
            return self.key[batch, kv_heads], self.value[batch, kv_heads]
        index = (batch[:, None], kv_heads[:, None], kept[None, :])
        return self.key[index], self.value[index]

    @property
    def groups(self) -> int:
        """Query heads per key/value head."""
        return int(self.query.shape[1] // self.key.shape[1])

    def visible(self, rows: Tensor, batch: int = 0) -> Tensor:
        """Which keys the model itself lets each query row of one batch row see.

        Args:
            rows: long (R,), indices into the query axis.

        Returns:
            bool (R, K).
        """
        keys = self.key.shape[2]
        if self.mask is None:
            # without a mask the kernel is causal with the last row aligned to the last key
            last = rows + (keys - self.query.shape[2])
            return torch.arange(keys, device=rows.device)[None, :] <= last[:, None]
        mask = self.mask[min(batch, self.mask.shape[0] - 1), 0, :, :keys]
        picked = mask[rows]
        if picked.dtype == torch.bool:
            return picked
        return picked > torch.finfo(picked.dtype).min / 2


class Handler(Protocol):
    """What acts inside the attention function while it is installed."""

    def attend(self, layer: int, call: Call) -> Tensor:
        """The layer's attention output, (B, Q, H, D); ``call.base()`` leaves it as it is."""


_LAYERS: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_HANDLER: ContextVar[Handler | None] = ContextVar("harness_heads_handler", default=None)


def _attention_for(base_name: str) -> Callable[..., tuple[Tensor, Tensor | None]]:
    def heads_attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        def base() -> Tensor:
            kernel = _kernel(base_name, module)
            result = kernel(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
            out: Tensor = result[0]
            return out

        handler, layer = _HANDLER.get(), _LAYERS.get(module)
        if handler is None or layer is None:
            return base(), None
        if kwargs.get("s_aux") is not None:
            raise HarnessHeadsError(f"layer {layer}: attention sinks in the softmax (s_aux) are not supported")
        if dropout:
            raise HarnessHeadsError(f"layer {layer}: attention dropout is on; call model.eval() first")
        if torch.is_grad_enabled() and query.requires_grad:
            raise HarnessHeadsError("interventions do not carry gradients; run the model under torch.no_grad()")
        if scaling is None:
            scaling = query.shape[-1] ** -0.5
        call = Call(query, key, value, attention_mask, scaling, kwargs.get("softcap"), base)
        return handler.attend(layer, call), None

    return heads_attention


def _kernel(base_name: str, module: nn.Module) -> Callable[..., Any]:
    if base_name == "eager":
        # every modeling file brings its own eager function; the interface knows it only at the call site
        # an untyped registry of transformers
        return sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[no-any-return]
    return ALL_ATTENTION_FUNCTIONS[base_name]  # type: ignore[no-any-return]  # an untyped registry of transformers


for _base, _mask in (("sdpa", sdpa_mask), ("eager", eager_mask)):
    # a compiled first call would run without the intervention
    # transformers leaves it untyped
    AttentionInterface.register(_PREFIX + _base, torch.compiler.disable(_attention_for(_base)))  # type: ignore[no-untyped-call]
    AttentionMaskInterface.register(_PREFIX + _base, _mask)


@contextmanager
def installed(model: nn.Module, family: Family) -> Iterator[str]:
    """Put the function on the text decoder of ``model`` for the length of the context.

    Yields:
        The name of the base kernel.

    Raises:
        HarnessHeadsError: for a model in training mode, a compiled one, or a kernel without a counterpart here.
    """
    refuse_unsupported(model, family)
    decoder = family.decoder(model)
    config: Any = decoder.config
    before = config._attn_implementation_internal
    base = kernel_name(model, family)
    added = []
    for layer, module in family.attention_modules(model).items():
        if module.config is not config:
            raise HarnessHeadsError(f"layer {layer}: its attention does not share the decoder's config; not supported")
        if module not in _LAYERS:
            _LAYERS[module] = layer
            added.append(module)
    # the private attribute on purpose: the public setter also writes to every sub-config
    config._attn_implementation_internal = _PREFIX + base
    try:
        yield base
    finally:
        config._attn_implementation_internal = before
        for module in added:  # another model may share this config object, and must not act in the next context
            del _LAYERS[module]


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """Let ``handler`` act in every registered layer for the length of the context."""
    if _HANDLER.get() is not None:
        raise HarnessHeadsError("another intervention is active; close its context before opening one")
    token = _HANDLER.set(handler)
    try:
        yield
    finally:
        _HANDLER.reset(token)


def kernel_name(model: nn.Module, family: Family) -> str:
    """Name of the text decoder's own kernel (``sdpa`` or ``eager``), installed or not."""
    # torch types every attribute of a module as Tensor | Module
    name = str(family.decoder(model).config._attn_implementation_internal)  # type: ignore[union-attr]
    name = name.removeprefix(_PREFIX)
    if name not in BASES:
        raise HarnessHeadsError(
            f"attention kernel {name!r} is not supported; load the model with attn_implementation='sdpa' or 'eager'"
        )
    return name


def refuse_unsupported(model: nn.Module, family: Family) -> None:
    """Raise for model states in which an intervention could be silently wrong."""
    if model.training or any(module.training for module in family.decoder(model).modules()):
        raise HarnessHeadsError("the model is in training mode; call model.eval() first")
    modules = [model, family.decoder(model), *family.layers(model)]
    if any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None for m in modules):
        raise HarnessHeadsError("the model is compiled (torch.compile); use the model as it was before compilation")
    if quantisation(model).endswith("8-bit, activations too"):
        # measured: 0.04 in log-probability between replayed rows and the full forward; weights alone in 4 bit: 2e-6
        raise HarnessHeadsError(
            "the model is quantised to 8 bits, activations too (LLM.int8): what a row gives depends on the rows beside "
            "it, so that no intervention can be held to its reference; load it in 4 bits (weights alone) or in 16"
        )


def quantisation(model: nn.Module) -> str:
    """How the weights are quantised, for example ``bitsandbytes 4-bit nf4``; empty where they are not."""
    config: Any = getattr(getattr(model, "config", None), "quantization_config", None)
    if config is None:
        return ""
    known = config if isinstance(config, dict) else config.to_dict()
    method = str(getattr(known.get("quant_method"), "value", known.get("quant_method")) or type(config).__name__)
    if known.get("load_in_4bit") or known.get("_load_in_4bit"):
        return f"{method} 4-bit {known.get('bnb_4bit_quant_type', '')}".rstrip()
    if known.get("load_in_8bit") or known.get("_load_in_8bit"):
        return f"{method} 8-bit, activations too"
    return f"{method} {known['bits']}-bit" if known.get("bits") else method


def forward_arguments(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The processor's tensors that the model's forward takes, without a cache, logits of the final row alone."""
    known = inspect.signature(model.forward).parameters
    arguments = {name: value for name, value in inputs.items() if name in known and value is not None}
    for name in set(inputs) - set(arguments):
        if isinstance(inputs[name], Tensor) and inputs[name].is_floating_point():
            raise HarnessHeadsError(
                f"{type(model).__name__}.forward takes no {name!r}: these inputs were made for another model"
            )
    if "input_ids" not in arguments:
        raise HarnessHeadsError("inputs hold no input_ids; pass what the host's processor made")
    if "use_cache" in known or any(p.kind is p.VAR_KEYWORD for p in known.values()):
        arguments["use_cache"] = False
    config: Any = model.config
    shares_keys = getattr(config.get_text_config(), "num_kv_shared_layers", 0)
    if "logits_to_keep" in known and not shares_keys:  # Gemma 4 would drop all rows but the last in its upper layers
        arguments["logits_to_keep"] = 1
    return arguments
