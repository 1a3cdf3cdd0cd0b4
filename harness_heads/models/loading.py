"""Turn model_args into a loaded host: embedded weights by name, float32 on a CPU, one line when weights are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from harness_heads import tiny
from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.models.hosts import HOSTS, Host

EMBEDDED: Mapping[str, Path] = {tiny.NAME: tiny.WEIGHTS}
"""Models inside the package, by the name that ``pretrained=`` takes."""


def host_arguments(host: Host, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The model's id and the host's constructor arguments, device and paths filled in.

    Raises:
        HarnessHeadsError: if no model is named and the host has no default, a local path does not exist, an embedded
            model's name is mistyped, or the batch size is no number (hosts would fail on it in words of their own).
    """
    filled = dict(arguments)
    model_id = str(filled.get("pretrained") or host.pretrained or "")
    if not model_id:
        raise HarnessHeadsError(f"model_args: this host needs pretrained=<hub id or folder>, or pretrained={tiny.NAME}")
    filled["pretrained"] = str(EMBEDDED.get(model_id, model_id))
    if _looks_local(model_id) and model_id not in EMBEDDED and not Path(model_id).is_dir():
        raise HarnessHeadsError(f"pretrained={model_id}: no such folder; give a hub id, a folder or {tiny.NAME}")
    hint = did_you_mean(model_id, EMBEDDED) if "/" not in model_id and not Path(model_id).exists() else ""
    if hint and model_id not in EMBEDDED:
        raise HarnessHeadsError(f"pretrained={model_id}: no such model{hint}")
    size = str(filled.get("batch_size", 1)).removesuffix(".0")
    if not size.isdecimal() or int(size) < 1:
        raise HarnessHeadsError(f"batch_size={size}: this host takes a whole number >= 1 and cannot find one itself")
    for name, path in EMBEDDED.items():
        if Path(filled["pretrained"]).resolve() == path.resolve():
            model_id = name
    if not torch.cuda.is_available():
        # the hosts default to cuda, and send inputs there while device_map is "auto": both must say cpu
        filled["device"], filled["device_map"] = "cpu", "cpu"
    return model_id, filled


@contextmanager
def loading(model_id: str) -> Iterator[None]:
    """Load in float32 without CUDA (the hosts hard-code bfloat16), and turn a missing model into one clear line."""
    original = PreTrainedModel.__dict__["from_pretrained"]
    if not torch.cuda.is_available():

        def in_float32(cls: type[PreTrainedModel], *args: Any, **kwargs: Any) -> Any:
            for name in ("dtype", "torch_dtype"):
                if name in kwargs:
                    kwargs[name] = torch.float32
            return original.__func__(cls, *args, **kwargs)

        PreTrainedModel.from_pretrained = classmethod(in_float32)
    try:
        yield
    except (OSError, ConnectionError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_hub_error(error):
            raise
        known = {host.pretrained for host in HOSTS if host.pretrained} - {model_id}
        hint = did_you_mean(model_id, known) or "."
        raise HarnessHeadsError(
            f"pretrained={model_id}: weights cannot be loaded ({_first_line(error)}){hint} "
            "Without the hub, name a local folder (pretrained=PATH) or the embedded model "
            f"(pretrained={tiny.NAME},head_set=tiny-digits/dg-ref-qsp)"
        ) from error
    finally:
        PreTrainedModel.from_pretrained = original


def _is_hub_error(error: BaseException) -> bool:
    names = {cls.__name__ for cls in type(error).__mro__}
    return bool(names & {"HfHubHTTPError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "RequestException"}) or (
        "client has been closed" in str(error)  # huggingface_hub after a refused connection
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def _looks_local(model_id: str) -> bool:
    return model_id.startswith((".", "~", os.sep)) or model_id.count("/") > 1
