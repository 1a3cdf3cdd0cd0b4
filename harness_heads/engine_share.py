"""Products that need not be computed: copies of the same rows, queries that nobody asks, rows that nobody reads.

Hooks on a decoder layer's own modules, for the length of one call. They change how often a product is computed and
nothing else; a layer that names its modules differently (fused projections) is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


@contextmanager
def sharing(attention: nn.Module | None, first: int) -> Iterator[None]:
    """Batch rows from ``first`` on hold the same hidden states: project one of them for all."""

    def spread(output: Tensor, length: int) -> Tensor:
        copies = output[first:].expand(length - first, *output.shape[1:])
        return torch.cat([output[:first], copies]) if first else copies

    with ExitStack() as hooks:
        for name in _PROJECTIONS:
            _narrowed(hooks, getattr(attention, name, None), 0, lambda hidden: hidden[: first + 1], spread)
        yield


@contextmanager
def without_queries(attention: nn.Module) -> Iterator[None]:
    """The queries of the coming call are not looked at: project the first row alone."""

    def spread(output: Tensor, length: int) -> Tensor:
        return output.expand(-1, length, *output.shape[2:])

    with ExitStack() as hooks:
        _narrowed(hooks, getattr(attention, "q_proj", None), 1, lambda hidden: hidden[:, :1], spread)
        yield


@contextmanager
def final_row_alone(layer: nn.Module, attention: nn.Module) -> Iterator[None]:
    """Of what ``layer`` gives out only the final row is read: its output projection and MLP see no other.

    Keys, values and attention are computed for all rows; the other rows of the layer's output are copies and mean
    nothing.
    """

    def spread(output: Any, length: int) -> Any:
        if isinstance(output, tuple):  # some mixtures of experts return what their router chose as well
            return (spread(output[0], length), *output[1:])
        return output.expand(-1, length, *output.shape[2:])

    with ExitStack() as hooks:
        for module in (getattr(attention, "o_proj", None), getattr(layer, "mlp", None)):
            _narrowed(hooks, module, 1, lambda hidden: hidden[:, -1:], spread)
        yield


def _narrowed(
    hooks: ExitStack,
    module: Any,
    axis: int,
    narrow: Callable[[Tensor], Tensor],
    spread: Callable[[Any, int], Any],
) -> None:
    """Let ``module`` see a narrowed input; ``spread`` widens its output over ``axis`` to the length asked for."""
    if not isinstance(module, nn.Module):
        return
    length: list[int] = []

    def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        length[:] = [args[0].shape[axis]]
        return (narrow(args[0]), *args[1:])

    def after(_: nn.Module, __: Any, output: Any) -> Any:
        return spread(output, length[0])

    hooks.callback(module.register_forward_pre_hook(before).remove)
    hooks.callback(module.register_forward_hook(after).remove)
