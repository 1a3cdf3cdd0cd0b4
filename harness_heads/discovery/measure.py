"""From attention that was read to per-sample measures of every head: the ingredients of all scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness_heads.discovery.capture import Got, Want
from harness_heads.discovery.entropy import spatial_entropy
from harness_heads.errors import HarnessHeadsError
from harness_heads.layouts import PromptLayout, RegionRule
from harness_heads.regions import Region

MEASURES = ("sum", "mean", "argmax", "argmax_image", "share", "image", "sink")
"""What is kept of every sample, source and head, in this order:

``sum``: attention on the target region, summed over its tokens.  ``mean``: that, divided by its number of tokens.
``argmax``: share of rows whose strongest key lies in the region.  ``argmax_image``: the same among image keys.
``share``: region mass over image mass (VERA).  ``image``: mass on all image tokens.  ``sink``: mass on the first token.
All are means over the source's rows, in [0, 1].
"""
ENTROPY = "entropy"
"""Spatial entropy of the mean image row (localization heads); kept only where a method asks for it."""

SOURCE_WORDS: Mapping[str, str] = {
    "last": "last prompt token",
    "qsp": "query-span tokens",
    "out": "output tokens",
    "in": "question tokens",
    "turn": "tokens from the question to the end of the prompt",
    "both": "question and output tokens",
    "first": "first output token",
    "one": "one random output token",
}

_EPSILON = 1e-9  # VERA's guard against an image that gets no attention


@dataclass(frozen=True, eq=False)
class Plan:
    """Which rows of one prompt belong to which source, and what is read of them.

    Attributes:
        want: rows and regions to read; every row once.
        sources: for each source the indices of its rows in ``want.rows``; long (n,).
        target: positions of the target region's tokens; long (m,).
    """

    want: Want
    sources: Mapping[str, Tensor]
    target: Tensor


def plan_rows(
    layout: PromptLayout,
    span: Tensor,
    answer: int,
    box: Sequence[int],
    sources: Sequence[str],
    target: Region,
    *,
    out_row: str,
    rule: RegionRule,
    rng: np.random.Generator,
    maps: Sequence[str] = (),
    name: str = "",
) -> Plan:
    """Row indices of every source of a prompt whose answer tokens stand right behind it.

    Args:
        layout: of the prompt without its answer, T tokens.
        span: rows of the query span; long (n,).
        answer: number of answer tokens A; token t stands at position T + t.
        box: which answer tokens count as output (0..A-1), all of them for plain answers.
        sources: names out of :data:`SOURCE_WORDS`.
        target: the region that the query means.
        out_row: ``predict`` takes row T + t - 1 for output token t, ``consume`` row T + t.
        rule: when a token belongs to a region.
        rng: picks the token of the source ``one``.
        maps: sources of which mean image rows are wanted.
        name: names the region in errors.

    Raises:
        HarnessHeadsError: a region without a token, or a source without a row.
    """
    shift = -1 if out_row == "predict" else 0
    out = torch.tensor([layout.length + t + shift for t in box], dtype=torch.long)
    question = layout.groups["question"]
    by_source = {
        "last": layout.groups["last"],
        "qsp": span,
        "in": question,
        "turn": layout.rows("question", "tail"),
        "out": out,
        "both": torch.cat([question, out]),
        "first": out[:1],
        "one": out[[int(rng.integers(len(out)))]] if len(out) else out,
    }
    rows = torch.tensor(sorted({int(r) for s in sources for r in by_source[s]}))
    for source in sources:
        if not len(by_source[source]):
            raise HarnessHeadsError(f"source {source!r}: the prompt has no {SOURCE_WORDS[source]}")
    if answer and int(rows[-1]) >= layout.length + answer:
        raise HarnessHeadsError(f"output token {max(box)} is not among the {answer} answer tokens")
    tokens = layout.region_tokens(target, rule, name)
    indices = {s: torch.searchsorted(rows, by_source[s]) for s in sources}
    want = Want(
        rows,
        {"target": tokens, "image": layout.image_positions, "sink": torch.zeros(1, dtype=torch.long)},
        {s: indices[s] for s in maps},
    )
    return Plan(want, indices, tokens)


def measure(plan: Plan, got: Got, sources: Sequence[str]) -> NDArray[np.float64]:
    """All measures of one prompt; float64 (S sources, V measures, L, H), NaN where a head is absent."""
    target, image = got.sums["target"].double(), got.sums["image"].double()
    inside = torch.isin(got.strongest, plan.target).double()
    inside_image = torch.isin(got.strongest_image, plan.target).double()
    absent = image[..., 0].isnan()
    per_row = torch.stack(
        [
            target,
            target / len(plan.target),
            inside,
            inside_image,
            target / (image + _EPSILON),
            image,
            got.sums["sink"].double(),
        ]
    )  # (V, L, H, R)
    out = torch.stack([per_row[..., plan.sources[s]].mean(-1) for s in sources])
    out[..., absent] = torch.nan
    return out.numpy()


def measure_entropy(layout: PromptLayout, got: Got, source: str) -> NDArray[np.float64]:
    """Spatial entropy of every head's mean image row; float64 (L, H), NaN where a head is absent.

    Raises:
        HarnessHeadsError: several images, or image tokens that are no single grid.
    """
    rows, columns = grid_shape(layout)
    maps = got.maps[source].double().numpy()
    out = np.full(maps.shape[:2], np.nan)
    for layer, head in zip(*np.nonzero(~np.isnan(maps[..., 0])), strict=True):
        out[layer, head] = spatial_entropy(maps[layer, head].reshape(rows, columns))
    return out


def grid_shape(layout: PromptLayout) -> tuple[int, int]:
    """Rows and columns of a prompt's only image, if its tokens are one row-major grid."""
    if len(layout.images) == 1 and not layout.images[0].views:
        cells = layout.images[0].cells
        rows, columns = len(set(cells[:, 1].tolist())), len(set(cells[:, 0].tolist()))
        if rows * columns == len(cells):
            return rows, columns
    raise HarnessHeadsError("spatial entropy needs one image whose tokens are one grid; this family's prompt is not")


def measure_calibrated(plan: Plan, got: Got, null: Got, source: str, image: Tensor) -> NDArray[np.float64]:
    """QRHead's calibrated score of one prompt; float64 (L, H), NaN where a head is absent.

    The mean row of ``source`` on each region token, less that of the same prompt with the null phrase; tokens whose
    difference lies below the head's mean - 2 SD over the region are dropped, the rest summed.

    Args:
        got, null: of the prompt and of its null prompt; both hold the map of ``source``.
        image: image positions of the prompt (the map's last axis); long (n_image,).
    """
    member = torch.isin(image, plan.target)
    difference = (got.maps[source] - null.maps[source]).double()[..., member]
    mean, spread = difference.mean(-1, keepdim=True), difference.std(-1, correction=0, keepdim=True)
    kept = torch.where(difference >= mean - 2 * spread, difference, torch.zeros_like(difference))
    kept[difference.isnan()] = torch.nan
    return kept.sum(-1).numpy()
