"""A model for discovery: weights, processor, family and who it is, without any harness."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForImageTextToText, AutoProcessor

from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family, family_of
from harness_heads.head_sets import model_id
from harness_heads.heads import Geometry, ModelRef
from harness_heads.tiny import NAME as TINY
from harness_heads.tiny import WEIGHTS
from harness_heads.weights import weights_digest

_PACKAGES = ("harness-heads", "transformers", "torch", "tokenizers", "numpy", "qwen-vl-utils")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model ready to be read.

    Attributes:
        model: in evaluation mode.
        processor: makes its inputs.
        family: its entry in :mod:`harness_heads.families`.
        reference: its id (``tiny-digits`` whatever the path) and revision.
        geometry: heads per decoder layer.
    """

    model: nn.Module
    processor: Any
    family: Family
    reference: ModelRef
    geometry: Geometry

    @property
    def slug(self) -> str:
        """Short name for head sets and folders."""
        return self.reference.id.rstrip("/").rsplit("/", 1)[-1].lower()

    def describe(self) -> dict[str, Any]:
        """Plain JSON for provenance: what was read."""
        parameter = next(self.model.parameters())
        return {
            "id": self.reference.id,
            "revision": self.reference.revision,
            "weights": weights_digest(self.model),
            "dtype": str(parameter.dtype).removeprefix("torch."),
            "family": self.family.name,
            "versions": versions(),
        }


def load(name: str, *, dtype: str | None = None, device: str | None = None, revision: str | None = None) -> Loaded:
    """Load a model by hub id, folder, or the name of the embedded model.

    Args:
        dtype: ``float32``, ``bfloat16``, ...; by default bfloat16 on a GPU, float32 on a CPU (where bfloat16 is slow).
        device: ``cpu``, ``cuda``, ...; by default a GPU if there is one.

    Raises:
        HarnessHeadsError: weights that cannot be loaded, an unknown dtype, or an unsupported model family.
    """
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = dtype or ("float32" if where == "cpu" else "bfloat16")
    if kind not in _DTYPES:
        raise HarnessHeadsError(f"dtype {kind!r} is unknown (known: {', '.join(_DTYPES)})")
    source = str(WEIGHTS) if name == TINY else name
    if name == TINY and not (WEIGHTS / "config.json").exists():
        raise HarnessHeadsError(
            f"the embedded model's weights are not in {WEIGHTS}; train it with python -m harness_heads.tiny.train"
        )
    try:
        processor = AutoProcessor.from_pretrained(source, revision=revision or "main")
        model = AutoModelForImageTextToText.from_pretrained(source, dtype=_DTYPES[kind], revision=revision or "main")
    except (OSError, ConnectionError, ValueError, KeyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise HarnessHeadsError(
            f"model {name}: it cannot be loaded ({first}); give a hub id, a local folder, or {TINY}"
        ) from error
    return wrap(model.to(where).eval(), processor, ModelRef(model_id(name), revision))


def wrap(model: nn.Module, processor: Any, reference: ModelRef) -> Loaded:
    """A model that is in memory already."""
    family = family_of(model)
    return Loaded(model, processor, family, reference, family.geometry(model))


def versions() -> dict[str, str]:
    """Versions of what decides a score."""
    out = {}
    for package in _PACKAGES:
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out


def code_digest() -> str:
    """Digest (12 hex digits) of the modules that decide what is measured; a journal of other code is not resumed."""
    root = Path(__file__).resolve().parents[1]
    names = [
        "attention.py",
        "reading.py",
        "layouts.py",
        "boxes.py",
        "regions.py",
        *(f"families/{p.name}" for p in (root / "families").glob("*.py")),
    ]
    names += [f"discovery/{n}.py" for n in ("answers", "capture", "measure", "entropy", "prompts", "runner", "samples")]
    names += [f"discovery/corpora/{p.name}" for p in (root / "discovery" / "corpora").glob("*.py")]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update((root / name).read_bytes())
    return digest.hexdigest()[:12]


def end_tokens(model: Any, processor: Any) -> set[int]:
    """Ids that end an answer."""
    tokenizer = getattr(processor, "tokenizer", processor)
    found: set[int] = set()
    for value in (
        getattr(model.generation_config, "eos_token_id", None),
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    ):
        if isinstance(value, int):
            found.add(value)
        elif value is not None:
            found.update(int(v) for v in value)
    return found


def pad_token(model: Any, processor: Any) -> int:
    """Id that fills up a batch."""
    tokenizer = getattr(processor, "tokenizer", processor)
    for value in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if value is not None:
            return int(value)
    return min(end_tokens(model, processor), default=0)


def kernel_of(describe: Mapping[str, Any]) -> str:
    """One line for people: id, digest, dtype."""
    return f"{describe['id']} ({describe['weights']}, {describe['dtype']})"
