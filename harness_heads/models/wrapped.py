"""The wrapped classes, made on first use: ``wrapped.masked_qwen3_vl`` is HeadsMixin over lmms-eval's Qwen3_VL."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from harness_heads.models.hosts import HOSTS, PREFIXES, host_of
from harness_heads.models.mixin import HeadsMixin


@cache
def wrapped_class(prefix: str, model_id: str) -> type[Any]:
    """The class of one (prefix, host)."""
    host = host_of(model_id)
    module = importlib.import_module(f"lmms_eval.models.chat.{host.model_id}")
    base = getattr(module, host.class_name)
    name = f"{prefix}_{model_id}"
    return type(name, (HeadsMixin, base), {"op": PREFIXES[prefix], "host": host, "__module__": __name__})


def __getattr__(name: str) -> type[Any]:
    prefix, _, model_id = name.partition("_")
    if prefix in PREFIXES and any(host.model_id == model_id for host in HOSTS):
        return wrapped_class(prefix, model_id)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
