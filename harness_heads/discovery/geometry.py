"""Geometry of a model from what is known of it without its weights."""

from __future__ import annotations

from typing import Any

from harness_heads.errors import HarnessHeadsError
from harness_heads.head_sets import model_id, resolve, shipped
from harness_heads.heads import Geometry
from harness_heads.tiny import NAME as TINY
from harness_heads.tiny import WEIGHTS


def geometry_of(model: str) -> Geometry:
    """Heads per decoder layer: from a shipped set of that model, else from its configuration.

    Raises:
        HarnessHeadsError: a configuration that cannot be read or does not say how many heads there are.
    """
    wanted = model_id(model)
    for name in shipped():
        head_set = resolve(name)
        if head_set.model.id == wanted:
            return head_set.geometry
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(WEIGHTS) if wanted == TINY else model)
    except (OSError, ValueError, KeyError, ConnectionError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise HarnessHeadsError(
            f"model {model}: its configuration cannot be read ({first}); give --geometry"
        ) from error
    return geometry_of_config(config)


def geometry_of_config(config: Any) -> Geometry:
    """Geometry that a configuration describes; layers without softmax attention (``linear_attention``) hold 0 heads.

    Raises:
        HarnessHeadsError: the configuration names no layers or heads.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers, heads = getattr(text, "num_hidden_layers", None), getattr(text, "num_attention_heads", None)
    if not layers or not heads:
        raise HarnessHeadsError("the configuration names no layers or heads; give --geometry LAYERSxHEADS")
    kv = getattr(text, "num_key_value_heads", None) or heads
    kinds = getattr(text, "layer_types", None) or ["full_attention"] * layers
    softmax = ["linear" not in str(kind) and "conv" not in str(kind) for kind in kinds]
    return Geometry(tuple(heads if s else 0 for s in softmax), tuple(kv if s else 0 for s in softmax))
