"""Two operations with hand-written gradients: on narrow heads they are several times faster than the stock ones."""

from typing import Any, cast

import torch
from torch import Tensor


class _HeadNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        # a product with a column of ones is the fastest mean over a short axis
        mean = flat.new_full((x.shape[-1], 1), 1 / x.shape[-1])
        scale = torch.rsqrt((flat * flat) @ mean + eps)
        unit = flat * scale
        ctx.save_for_backward(unit, scale, mean)
        return unit.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        unit, scale, mean = ctx.saved_tensors
        flat = grads[0].reshape(-1, grads[0].shape[-1])
        return (scale * (flat - unit * ((flat * unit) @ mean))).view(grads[0].shape), None


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    out = x * cos
    out[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-1)
    out[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grads[0], cos, -sin), None, None


def head_norm(x: Tensor, eps: float) -> Tensor:
    """RMS norm over the last axis, without gain."""
    return cast(Tensor, _HeadNorm.apply(x, eps))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding: (..., dim) turned by angles whose two halves are equal; no gradient to the angles."""
    return cast(Tensor, _Rotate.apply(x, cos, sin))
