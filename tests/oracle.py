"""An independent float64 implementation of the interventions, from their definitions, by explicit loops.

It shares nothing with the engine or its self-check: it registers an attention function of its own, builds every touched
row key by key, and runs the model's own forward once per head set. Inside :func:`float64_throughout` the casts to
float32 that transformers puts into norms and softmax are kept in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "oracle_of_the_tests"


@dataclass(frozen=True)
class Spec:
    """What is done to one batch row, in padded positions.

    heads: (layer, head) pairs.  rows: query positions.  keys, others: key positions.  beta: finite or "hard".
    """

    op: str
    heads: tuple[tuple[int, int], ...]
    rows: frozenset[int]
    keys: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()
    beta: float | str | None = None
    keep_self: bool = False


@dataclass
class _Run:
    specs: list[Spec | None]
    layers: dict[int, int] = field(default_factory=dict)  # id of an attention module -> layer
    attention: dict[int, np.ndarray] = field(default_factory=dict)


_RUN: list[_Run] = []


def row_weights(scores: list[float], visible: list[bool], row: int, spec: Spec) -> list[float]:
    """Attention of one touched row from its scores, key by key."""
    n = len(scores)
    if spec.op == "zero":
        return [0.0] * n
    if spec.op == "uniform":
        count = sum(visible)
        return [1.0 / count if v else 0.0 for v in visible]
    logits: list[float] = []
    for key in range(n):
        value = scores[key] if visible[key] else -math.inf
        if spec.op == "mask" and key in spec.keys and not (spec.keep_self and key == row):
            value = -math.inf
        if spec.op == "steer" and spec.beta != "hard":
            if key in spec.keys:
                value += float(spec.beta)
            elif key in spec.others:
                value -= float(spec.beta)
        logits.append(value)
    if spec.op == "steer" and spec.beta == "hard":
        ranks = [2 if k in spec.keys else 0 if k in spec.others else 1 for k in range(n)]
        best = max(ranks[k] for k in range(n) if visible[k])
        logits = [logits[k] if visible[k] and ranks[k] == best else -math.inf for k in range(n)]
    top = max(logits)
    if top == -math.inf:
        return [0.0] * n
    weights = [math.exp(v - top) for v in logits]
    total = math.fsum(weights)
    return [w / total for w in weights]


def oracle_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Dense attention in float64; touched rows of touched heads by :func:`row_weights`."""
    run = _RUN[-1]
    q, k, v = (t.detach().double().numpy() for t in (query, key, value))
    batch, heads, rows, width = q.shape
    groups = heads // k.shape[1]
    scaling = width**-0.5 if scaling is None else scaling
    allowed = (attention_mask[:, 0, :, : k.shape[2]] == 0).numpy()
    layer = run.layers.get(id(module))
    out = np.zeros((batch, rows, heads, v.shape[-1]))
    seen = np.zeros((batch, heads, rows, k.shape[2]))
    for b in range(batch):
        spec = run.specs[b]
        for h in range(heads):
            scores = scaling * (q[b, h] @ k[b, h // groups].T)
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            touched = spec is not None and (layer, h) in spec.heads
            for r in range(rows):
                if touched and r in spec.rows:
                    seen[b, h, r] = row_weights(scores[r].tolist(), allowed[b, r].tolist(), r, spec)
                elif allowed[b, r].any():
                    masked = np.where(allowed[b, r], scores[r], -np.inf)
                    weights = np.exp(masked - masked.max())
                    seen[b, h, r] = weights / weights.sum()
            out[b, :, h] = seen[b, h] @ v[b, h // groups]
    if layer is not None:
        run.attention[layer] = seen
    return torch.from_numpy(out).to(query.dtype), None


AttentionInterface.register(NAME, oracle_attention)
AttentionMaskInterface.register(NAME, eager_mask)


_PRODUCTS = (Tensor.matmul, Tensor.__matmul__, torch.matmul, torch.bmm, Tensor.bmm, torch.nn.functional.grid_sample)


class _KeepFloat64(TorchFunctionMode):
    """Turns casts of float64 tensors to float32 into no-ops, and products with float32 into float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            if func is Tensor.float:
                return args[0]
            if func is Tensor.to or func is Tensor.type:
                args = tuple(torch.float64 if a is torch.float32 else a for a in args)
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
        if func in _PRODUCTS and any(isinstance(a, Tensor) and a.dtype == torch.float64 for a in args):
            args = tuple(a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)
        return func(*args, **kwargs)


def float64_throughout() -> _KeepFloat64:
    """Context in which float64 stays float64."""
    return _KeepFloat64()


@contextmanager
def _oracle_on(model: Any, specs: list[Spec | None]) -> Iterator[_Run]:
    decoder = model.get_decoder()
    run = _Run(specs)
    for index, layer in enumerate(decoder.layers):
        if hasattr(layer, "self_attn"):
            run.layers[id(layer.self_attn)] = index
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation_internal = NAME
    _RUN.append(run)
    try:
        yield run
    finally:
        _RUN.pop()
        decoder.config._attn_implementation_internal = before


@dataclass(frozen=True)
class OracleResult:
    """logits: final row of every batch row, float64 (B, V).  attention: per layer (B, H, Q, K)."""

    logits: Tensor
    attention: dict[int, np.ndarray]


def run_oracle(model: Any, inputs: dict[str, Any], specs: list[Spec | None]) -> OracleResult:
    """The model's forward with row b of the batch under ``specs[b]``."""
    with torch.no_grad(), _oracle_on(model, specs) as run:
        logits = model(**inputs, use_cache=False).logits[:, -1].double()
    return OracleResult(logits, run.attention)
