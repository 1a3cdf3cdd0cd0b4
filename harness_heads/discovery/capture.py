"""Attention of a batch of prompts, reduced inside the attention function to what scores need; never T x T."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness_heads.attention import Call, Handler, forward_arguments, handling, installed
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family
from harness_heads.reading import probabilities

# attention values held at a time: 1 MB in float32 on a CPU (it stays in the cache), 64 MB where launches cost more
_SCORES_AT_ONCE, _SCORES_AT_ONCE_GPU = 256 * 1024, 16 * 1024 * 1024


@dataclass(frozen=True, eq=False)
class Want:
    """What to read of one prompt; positions without padding.

    Attributes:
        rows: query rows; long (R,).
        regions: key regions by name; long positions each. ``image`` must hold every image token.
        groups: named subsets of ``rows`` (by index into ``rows``) of which :attr:`Got.maps` holds mean image rows.
    """

    rows: Tensor
    regions: Mapping[str, Tensor]
    groups: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(eq=False)
class Got:
    """What was read of one prompt; L decoder layers, H the largest number of heads, NaN or -1 where a head is absent.

    Attributes:
        sums: attention of each row summed over each region, by region; float (L, H, R), in [0, 1].
        strongest: position of the key with the largest attention; long (L, H, R).
        strongest_image: the same among image keys.
        maps: mean over a group's rows of the attention on each image token, by group; float (L, H, n_image).
    """

    sums: dict[str, Tensor]
    strongest: Tensor
    strongest_image: Tensor
    maps: dict[str, Tensor]


class _Reader:
    """Handler of :mod:`harness_heads.attention`: reads on the way and leaves every output as it (or ``inner``) is."""

    def __init__(
        self,
        wants: Sequence[Want],
        pads: Sequence[int],
        layers: int,
        heads: int,
        device: torch.device,
        inner: Handler | None,
    ) -> None:
        self._wants, self._pads, self._inner = wants, pads, inner
        self._moved: list[tuple[Tensor, dict[str, Tensor]]] = [
            ((w.rows + pad).to(device), {name: (keys + pad).to(device) for name, keys in w.regions.items()})
            for w, pad in zip(wants, pads, strict=True)
        ]
        self._shape = (layers, heads)
        self.layers: set[int] = set()
        self.got: list[Got] | None = None

    def attend(self, layer: int, call: Call) -> Tensor:
        out = call.base() if self._inner is None else self._inner.attend(layer, call)
        if call.query.shape[0] != len(self._wants):
            raise HarnessHeadsError(
                f"layer {layer}: {call.query.shape[0]} prompts in the batch, {len(self._wants)} wanted"
            )
        if call.query.shape[2] != call.key.shape[2]:
            raise HarnessHeadsError(f"layer {layer}: attention is read in one forward pass without a cache")
        if self.got is None:
            dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
            self.got = [self._empty(want, dtype) for want in self._wants]
        self.layers.add(layer)
        for batch in range(len(self._wants)):
            self._read(layer, call, batch)
        return out

    def _empty(self, want: Want, dtype: torch.dtype) -> Got:
        rows, image = len(want.rows), len(want.regions["image"])
        return Got(
            {name: torch.full((*self._shape, rows), torch.nan, dtype=dtype) for name in want.regions},
            torch.full((*self._shape, rows), -1),
            torch.full((*self._shape, rows), -1),
            {name: torch.full((*self._shape, image), torch.nan, dtype=dtype) for name in want.groups},
        )

    def _read(self, layer: int, call: Call, batch: int) -> None:
        assert self.got is not None
        want, got, pad = self._wants[batch], self.got[batch], self._pads[batch]
        rows, regions = self._moved[batch]
        heads, keys = call.query.shape[1], call.key.shape[2]
        image = regions["image"]
        limit = _SCORES_AT_ONCE if image.device.type == "cpu" else _SCORES_AT_ONCE_GPU
        block = max(1, limit // (heads * keys))
        collected: dict[str, list[Tensor]] = {name: [] for name in regions}
        strongest: list[Tensor] = []
        strongest_image: list[Tensor] = []
        maps = {
            name: torch.zeros((heads, len(image)), dtype=torch.float64, device=image.device) for name in want.groups
        }
        for start in range(0, len(rows), block):
            part = probabilities(call, rows[start : start + block], batch)  # (H, r, K)
            for name, positions in regions.items():
                collected[name].append(part.index_select(2, positions).sum(2))
            strongest.append(part.argmax(2) - pad)
            on_image = part.index_select(2, image)
            strongest_image.append(image[on_image.argmax(2)] - pad)
            for name, members in want.groups.items():
                inside = members[(members >= start) & (members < start + part.shape[1])].to(image.device) - start
                maps[name] += on_image.index_select(1, inside).sum(1).double() / len(members)
        for name, parts in collected.items():
            got.sums[name][layer, :heads] = torch.cat(parts, 1).cpu()
        got.strongest[layer, :heads] = torch.cat(strongest, 1).cpu()
        got.strongest_image[layer, :heads] = torch.cat(strongest_image, 1).cpu()
        for name, value in maps.items():
            got.maps[name][layer, :heads] = value.to(got.maps[name].dtype).cpu()


def capture(
    model: nn.Module,
    family: Family,
    inputs: Mapping[str, Any],
    wants: Sequence[Want],
    pads: Sequence[int],
    inner: Handler | None = None,
) -> list[Got]:
    """One forward pass over a padded batch, and what was read of each prompt on the way.

    Args:
        inputs: model inputs on any device; moved to the model's.
        wants: one a prompt.
        pads: padding tokens on the left of each prompt.
        inner: an intervention that acts while attention is read. What is read of a head that it overwrites is that
            head's attention before the overwriting.

    Raises:
        HarnessHeadsError: no row or no image token to read, or a layer with heads that was never reached.
    """
    for index, want in enumerate(wants):
        if not len(want.rows):
            raise HarnessHeadsError(f"prompt {index}: no row to read attention of")
        if not len(want.regions["image"]):
            raise HarnessHeadsError(f"prompt {index}: it holds no image token")
    geometry = family.geometry(model)
    device = next(model.parameters()).device
    reader = _Reader(wants, pads, len(geometry.heads), max(geometry.heads), device, inner)
    with torch.no_grad(), installed(model, family), handling(reader):
        model(**forward_arguments(model, to_device(inputs, model)))
    missed = [layer for layer, count in enumerate(geometry.heads) if count and layer not in reader.layers]
    if missed or reader.got is None:
        raise HarnessHeadsError(
            f"attention of layers {missed} was not reached; the model bypasses the attention interface"
        )
    return reader.got


def to_device(inputs: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """Inputs where the model is, pixels in its dtype."""
    parameter = next(model.parameters())
    moved = {}
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            value = value.to(parameter.device)
            if value.is_floating_point():
                value = value.to(parameter.dtype)
        moved[name] = value
    return moved
