"""A second device that is not there: tensors that say they lie on ``pretend:0`` and are computed on the CPU.

An operation that mixes them with tensors of the CPU fails as it would beside a GPU (numbers without a dimension may
mix, and a CPU tensor may index), so that code which forgets to move a tensor is found on machines without one. What
kernels of a GPU compute differently is not covered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretend")
# the device has no memory of its own to manage: libraries that ask which accelerator is here are told of none
torch.accelerator.current_accelerator = lambda check_available=False: None  # type: ignore[assignment]
DEVICE, CPU = torch.device("pretend:0"), torch.device("cpu")
_BETWEEN = ("_to_copy", "copy_")  # may take tensors of two devices
_INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_")
_FROM_PYTHON = ("tensor", "as_tensor", "arange", "full", "linspace")


class Pretend(Tensor):
    """A tensor of the device; ``inner`` holds its values."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Pretend:
        made: Pretend = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        return made

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self, **_: Any) -> str:
        return f"Pretend({self.inner!r})"

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("cannot convert a pretend tensor to numpy; use Tensor.cpu() first")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Compute on the CPU what was asked for on either device."""
    name = func.__name__.split(".")[0]
    tensors = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]
    here = [t for t in tensors if not isinstance(t, Pretend)]
    there = len(here) < len(tensors)
    if there and name not in _BETWEEN:
        allowed = tree_leaves(args[1]) if name in _INDEXED and isinstance(args[0], Pretend) else []
        if any(t.dim() and not any(t is index for index in allowed) for t in here):
            shapes = ", ".join(f"{'pretend' if isinstance(t, Pretend) else 'cpu'} {tuple(t.shape)}" for t in tensors)
            raise RuntimeError(f"{name}: expected all tensors on one device, got {shapes}")
    wanted = kwargs.get("device")
    device = torch.device(wanted) if wanted is not None else (DEVICE if there else CPU)
    inner_kwargs = {**kwargs, "device": CPU} if wanted is not None and device.type == DEVICE.type else dict(kwargs)

    def unwrapped(value: Any) -> Any:
        return value.inner if isinstance(value, Pretend) else value

    result = func(*tree_map(unwrapped, args), **tree_map(unwrapped, inner_kwargs))
    if name.endswith("_") and not name.startswith("__"):
        return args[0]
    if device.type == DEVICE.type:
        return tree_map(lambda value: Pretend(value) if isinstance(value, Tensor) else value, result)
    if there and name in _BETWEEN:  # a move never shares memory
        return tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, result)
    return result


class _Dispatch(TorchDispatchMode):
    """Sees what is made on the device without any tensor of it among its arguments."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _FromPython(TorchFunctionMode):
    """Values that torch copies from Python outside of its dispatcher: lists as indices, ``torch.tensor``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in _FROM_PYTHON:
            args = tree_map(lambda v: v.inner.item() if isinstance(v, Pretend) and not v.dim() else v, args)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            index = tuple(torch.tensor(part) if isinstance(part, list) else part for part in index)
            args = (args[0], index if isinstance(args[1], tuple) else index[0], *args[2:])
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


@contextmanager
def second_device() -> Iterator[torch.device]:
    """Context in which ``pretend:0`` exists."""
    with _Dispatch(), _FromPython(), torch.no_grad():
        yield DEVICE


def moved(model: nn.Module) -> nn.Module:
    """All parameters and buffers of ``model`` on the device, in place; tied ones stay tied."""
    known: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                there = nn.Parameter(Pretend(parameter.data), requires_grad=False)
                module._parameters[name] = known.setdefault(id(parameter), there)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = Pretend(buffer)
    return model
