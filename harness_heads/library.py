"""Library use, without a harness: intervene on a transformers model, or read its attention.

with harness_heads.intervene(model, harness_heads.Mask([(12, 3), (14, 0)]), processor=processor):
    model.generate(**inputs)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from harness_heads.conditions import Beta, Condition
from harness_heads.engine_generate import acting
from harness_heads.engine_options import without_padding
from harness_heads.engine_prompts import Prompts
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import family_of
from harness_heads.geometry import as_head
from harness_heads.heads import Head, HeadSet
from harness_heads.interventions import Intervention
from harness_heads.reading import read_rows
from harness_heads.regions import Region

Heads = HeadSet | Iterable[tuple[int, int]]
Rows = str | Sequence[str]
"""One row group, or several whose union is meant."""


def Mask(
    heads: Heads, keys: str = "image", rows: Rows = ("all",), *, phase: str = "both", keep_self: bool = False
) -> Intervention:
    """Cut the attention of ``heads`` to ``keys`` (``image``, ``text`` or a region's name) on ``rows``."""
    return Intervention(_heads(heads), Condition("mask", keys, _rows(rows), phase=phase, keep_self=keep_self))


def Steer(
    heads: Heads,
    keys: str,
    beta: Beta = "hard",
    rows: Rows = ("all",),
    *,
    phase: str = "both",
    numerics: str = "float32",
) -> Intervention:
    """Raise the scores of region ``keys`` by ``beta`` and lower those of all other image tokens by as much."""
    return Intervention(
        _heads(heads), Condition("steer", keys, _rows(rows), _beta(beta), phase=phase, numerics=numerics)
    )


def Ablate(heads: Heads, rows: Rows = ("all",), *, phase: str = "both", ablation: str = "zero") -> Intervention:
    """Zero the output of ``heads``, or make their attention uniform (``ablation="uniform"``)."""
    return Intervention(_heads(heads), Condition("ablate", "", _rows(rows), phase=phase, ablation=ablation))


@contextmanager
def intervene(
    model: Any,
    intervention: Intervention,
    *,
    processor: Any = None,
    regions: Mapping[str, Region] | None = None,
    image_sizes: Sequence[tuple[int, int]] = (),
) -> Iterator[None]:
    """Context in which every forward and ``generate`` of ``model`` runs under ``intervention``.

    Args:
        model: a transformers vision-language model of a supported family, in evaluation mode; forwards must run under
            ``torch.no_grad()``.
        processor: finds the user turn; needed for rows ``question`` and ``tail`` and for keys ``text``.
        regions: boxes that the intervention may name, in pixels of the image as shown.
        image_sizes: width and height of every image as shown, needed with ``regions``.

    Raises:
        HarnessHeadsError: if the model, its state or the heads are not supported, or when the context closes without
            the intervention having touched anything.
    """
    if not isinstance(intervention, Intervention):
        raise HarnessHeadsError(f"intervene: {intervention!r} is no intervention; write Mask(heads), Steer or Ablate")
    _check_regions(regions, "intervene")
    family = family_of(model)
    geometry = family.geometry(model)
    for head in intervention.heads:
        geometry.check(head, "intervention")
    prompts = Prompts(
        model, family, processor, [intervention.heads], intervention.condition, regions or {}, image_sizes
    )
    with acting(prompts):
        yield


def read(
    model: Any,
    inputs: Mapping[str, Any],
    *,
    rows: Rows | int | Sequence[int] = ("last",),
    regions: Mapping[str, Region] | None = None,
    image_sizes: Sequence[tuple[int, int]] = (),
    processor: Any = None,
) -> Tensor:
    """Attention of every head, summed over ``image`` and each region, averaged over rows.

    Args:
        inputs: tensors of one prompt; padding is taken off first.
        rows: row groups, or row numbers of the prompt without padding (negative ones from its end).

    Returns:
        float32 (layers, heads, 1 + regions); the first column is the whole image. Layers without softmax heads hold
        zeros.

    Raises:
        HarnessHeadsError: for a batch, a row that the prompt does not hold, or an unsupported model.
    """
    _check_regions(regions, "read")
    family = family_of(model)
    if "input_ids" not in inputs:
        raise HarnessHeadsError("read: inputs hold no input_ids; pass what the host's processor made")
    if inputs["input_ids"].shape[0] != 1:
        raise HarnessHeadsError(f"read: one prompt at a time, got a batch of {inputs['input_ids'].shape[0]}")
    inputs = without_padding(inputs)
    layout = family.layout(model.config, inputs, image_sizes, processor)
    named = regions or {}
    keys = [layout.image_positions, *(layout.region_tokens(region, name=name) for name, region in named.items())]
    asked: tuple[Any, ...] = (rows,) if isinstance(rows, str | int) else tuple(rows)
    if not asked:
        raise HarnessHeadsError("read: rows is empty; name row groups or row numbers")
    if any(isinstance(row, str) for row in asked):
        positions = layout.rows([str(row) for row in asked])
    else:
        positions = torch.tensor([_row(row, layout.length) for row in asked], dtype=torch.long)
    if not len(positions):
        raise HarnessHeadsError(f"read: no row {'+'.join(map(str, asked))} in this prompt")
    return read_rows(model, family, inputs, positions, keys).mean(2)


def _row(row: Any, length: int) -> int:
    """A row number of the prompt; negative ones count from its end."""
    if isinstance(row, bool) or not isinstance(row, Integral):
        raise HarnessHeadsError(f"read: row {row!r} is no whole number")
    if not -length <= int(row) < length:
        raise HarnessHeadsError(f"read: row {row} is not in this prompt of {length} tokens")
    return int(row) % length


def _rows(rows: Rows) -> tuple[str, ...]:
    if not isinstance(rows, str | Sequence):
        raise HarnessHeadsError(f"intervention: rows={rows!r}; write a row group or several, for example ('last',)")
    return (rows,) if isinstance(rows, str) else tuple(rows)


def _heads(heads: Heads) -> tuple[Head, ...]:
    if not isinstance(heads, Iterable):
        raise HarnessHeadsError(f"intervention: heads={heads!r}; write (layer, head) pairs, for example [(12, 3)]")
    return tuple(as_head(head, "intervention") for head in heads)


def _beta(beta: Any) -> Beta:
    """A number of any kind (numpy's too) as Python's."""
    return float(beta) if isinstance(beta, Real) and not isinstance(beta, bool | int) else beta


def _check_regions(regions: Any, caller: str) -> None:
    """Raise unless it is ``None`` or a mapping of names to regions."""
    if regions is None:
        return
    if not isinstance(regions, Mapping):
        raise HarnessHeadsError(f"{caller}: regions={regions!r}; write a mapping of names to Region(...)")
    for name, region in regions.items():
        if not isinstance(region, Region):
            raise HarnessHeadsError(f"{caller}: region {name!r} is {region!r}; write Region(((x0, y0, x1, y1),))")
