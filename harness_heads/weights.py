"""Which weights a model has: short digests that tell replaced or edited ones from those that were measured."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from torch import Tensor, nn

SAMPLE = 4096  # values looked at per parameter


def weights_digest(model: nn.Module) -> str:
    """The name that reports and provenance give to weights; 12 hex digits.

    Names, shapes, and sums in float64 over the first 4,096 values of every parameter: tells checkpoints apart.
    """
    return _digest(model, lambda parameter: parameter.detach().flatten()[:SAMPLE])


def spread_digest(model: nn.Module) -> str:
    """As :func:`weights_digest`, over values from all rows and columns: tells a model from one edited in a few heads.

    Answers that are kept for a resumed run carry it.
    """
    return _digest(model, _spread)


def _spread(parameter: Tensor) -> Tensor:
    """About 4,096 values; the step shares no factor with a row's length, so that every column has its turn."""
    flat = parameter.detach().flatten()
    step = max(1, len(flat) // SAMPLE)
    while math.gcd(step, parameter.shape[-1] if parameter.ndim else 1) != 1:
        step += 1
    return flat[::step]


def _digest(model: nn.Module, sample: Callable[[Tensor], Tensor]) -> str:
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if parameter.is_meta:  # offloaded by accelerate: only its hooks can bring the values
            digest.update(f"{name}{tuple(parameter.shape)}".encode())
            continue
        some = sample(parameter).double()
        digest.update(f"{name}{tuple(parameter.shape)}{float(some.sum())!r}{float(some.abs().sum())!r}".encode())
    return digest.hexdigest()[:12]
