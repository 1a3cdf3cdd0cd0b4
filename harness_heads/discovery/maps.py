"""Where heads look: mean attention maps over an image for all heads, a set, and all but the set (paper B, A1 and A2).

And what an intervention takes away: attention on the referent from the prediction rows, before and after.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from harness_heads.boxes import parse_box
from harness_heads.conditions import Condition
from harness_heads.discovery.capture import Got, Want, capture, to_device
from harness_heads.discovery.drawing import svg, text
from harness_heads.discovery.loading import Loaded, end_tokens, pad_token
from harness_heads.discovery.prompts import Prompt, Rendered, render, system_of, with_answers
from harness_heads.engine_handlers import Overwrite, Target
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head, HeadSet
from harness_heads.interventions import resolve
from harness_heads.layouts import PromptLayout
from harness_heads.regions import Box, Region

ROW_WORDS = {"answer": "rows that predict the answer", "last": "last prompt row", "question": "question's rows"}
ROWS = tuple(ROW_WORDS)
PANELS = ("all heads", "the set", "all but the set")


@dataclass(frozen=True, eq=False)
class Maps:
    """What was read of one prompt.

    Attributes:
        answer: what the model said.
        rows: which rows look, one of :data:`ROWS`.
        predicted: box in its answer in pixels of the image as shown, ``None`` where there is none.
        maps: mean attention of each group of heads on each image token, by :data:`PANELS`; (n_image,).
        cells: box of each image token as fractions of the image; (n_image, 4), NaN where it covers nothing.
        referent: mean attention on the referent from the rows, per layer and group; (L,), NaN without such heads.
        after: the same under the intervention; empty without one.
        counts: heads of each group in every layer; (L,).
        whole: no referent was named; it is the whole image.
    """

    answer: str
    rows: str
    predicted: Box | None
    maps: Mapping[str, NDArray[np.float64]]
    cells: NDArray[np.float64]
    referent: Mapping[str, NDArray[np.float64]]
    after: Mapping[str, NDArray[np.float64]]
    counts: Mapping[str, NDArray[np.int64]]
    whole: bool = False

    @property
    def where(self) -> str:
        """What :attr:`referent` is measured on, in words."""
        return "the image" if self.whole else "the referent"

    def mean(self, group: str, after: bool = False) -> float:
        """Mean over all heads of a group (not over layers) of the attention on the referent."""
        values, counts = (self.after if after else self.referent)[group], self.counts[group]
        return float((np.where(counts > 0, values, 0.0) * counts).sum() / counts.sum()) if counts.sum() else np.nan


def read_maps(
    loaded: Loaded,
    head_set: HeadSet,
    image: Image.Image,
    words: str,
    *,
    referent: Region | None = None,
    rows: str = "answer",
    condition: Condition | None = None,
    max_new_tokens: int = 64,
) -> Maps:
    """Answer a prompt and read where its heads look.

    Args:
        image: as shown.  words: the user's text after it.
        referent: region whose attention is followed through the layers; the whole image without one.
        rows: ``answer`` (rows that predict the answer's tokens), ``last``, or ``question``.
        condition: what is done to the set for the second reading (``mask`` or ``ablate``).

    Raises:
        HarnessHeadsError: unknown rows, a condition that steers, or several images' worth of tokens.
    """
    if rows not in ROWS:
        raise HarnessHeadsError(f"rows {rows!r} are unknown (known: {', '.join(ROWS)})")
    if condition is not None and condition.op not in ("mask", "ablate"):
        raise HarnessHeadsError("attention before and after: mask or ablate the set; steering only moves its attention")
    config: Any = loaded.model.config
    rendered = render(loaded.processor, config, loaded.family, [Prompt((image,), words)], system_of(loaded.family))
    layout = rendered.layouts[0]
    answer = _answer(loaded, rendered, max_new_tokens)
    queries = _rows(layout, rows, len(answer))
    image_tokens = layout.image_positions
    target = image_tokens if referent is None else layout.region_tokens(referent, name="referent")
    want = Want(queries, {"target": target, "image": image_tokens}, {"rows": torch.arange(len(queries))})
    inputs = with_answers(rendered, [answer], pad_token(loaded.model, loaded.processor), config)
    got = capture(loaded.model, loaded.family, inputs, [want], rendered.pads)[0]
    after: dict[str, NDArray[np.float64]] = {}
    if condition is not None:
        regions = {"referent": referent} if referent is not None else {}
        action = resolve(condition, layout, regions)
        device = next(loaded.model.parameters()).device
        overwrite = Overwrite([Target(tuple(head_set.heads), action)], device, inputs["input_ids"].shape[1])
        changed = capture(loaded.model, loaded.family, inputs, [want], rendered.pads, overwrite)[0]
        # what an overwritten head read is lost: its output carries nothing of the referent
        after = _by_layer(changed, head_set, lost=action.touches(queries))
    tokenizer = getattr(loaded.processor, "tokenizer", loaded.processor)
    said = tokenizer.decode(answer.tolist(), skip_special_tokens=True)
    box = None
    if loaded.family.box_format:
        box = parse_box(said, loaded.family.box_format, image.size, image.size)
    return Maps(
        said,
        rows,
        box,
        {name: _mean_map(got, heads) for name, heads in _groups(loaded, head_set).items()},
        torch.cat([part.cells for part in layout.images]).numpy(),
        _by_layer(got, head_set),
        after,
        _counts(loaded, head_set),
        referent is None,
    )


def _answer(loaded: Loaded, rendered: Rendered, limit: int) -> Tensor:
    model: Any = loaded.model
    with torch.no_grad():
        made = model.generate(
            **to_device(rendered.inputs, model),
            max_new_tokens=limit,
            do_sample=False,
            pad_token_id=pad_token(model, loaded.processor),
        )
    ids: Tensor = made[0, rendered.inputs["input_ids"].shape[1] :].cpu()
    ends = end_tokens(model, loaded.processor)
    stop = next((i for i, token in enumerate(ids.tolist()) if token in ends), len(ids))
    return ids[: max(stop, 1)]


def _rows(layout: PromptLayout, rows: str, answer: int) -> Tensor:
    if rows == "answer":
        return torch.arange(layout.length - 1, layout.length - 1 + answer)
    return layout.groups[rows]


def _groups(loaded: Loaded, head_set: HeadSet) -> dict[str, tuple[Head, ...]]:
    every, own = loaded.geometry.all_heads(), set(head_set)
    return dict(zip(PANELS, (every, head_set.heads, tuple(h for h in every if h not in own)), strict=True))


def _counts(loaded: Loaded, head_set: HeadSet) -> dict[str, NDArray[np.int64]]:
    layers = len(loaded.geometry.heads)
    return {
        name: np.bincount([h.layer for h in heads], minlength=layers)
        for name, heads in _groups(loaded, head_set).items()
    }


def _mean_map(got: Got, heads: Sequence[Head]) -> NDArray[np.float64]:
    maps = got.maps["rows"].double()
    return torch.stack([maps[h.layer, h.head] for h in heads]).mean(0).numpy()


def _by_layer(got: Got, head_set: HeadSet, lost: Tensor | None = None) -> dict[str, NDArray[np.float64]]:
    values = got.sums["target"].double().clone()  # (L, H, R)
    own = torch.zeros(values.shape[:2], dtype=torch.bool)
    for head in head_set:
        own[head.layer, head.head] = True
    if lost is not None:
        values[own[:, :, None] & lost[None, None, :]] = 0.0
    mean = values.mean(2)
    present = ~mean.isnan()
    out = {}
    for name, mask in zip(PANELS, (present, own & present, ~own & present), strict=True):
        total, count = torch.where(mask, mean, 0.0).sum(1), mask.sum(1)
        out[name] = torch.where(count > 0, total / count.clamp(min=1), torch.nan).numpy()
    return out


def draw_maps(
    maps: Maps, image: Image.Image, gold: Sequence[Box] = (), title: str = "", condition: Condition | None = None
) -> str:
    """SVG: the image and one overlay a group of heads, gold box green, predicted box red; below, the layers' curves."""
    wide = 260.0
    scale = wide / image.width
    tall = image.height * scale
    picture = _embedded(image)
    parts = [text(12, 20, title, size=14)]
    # the predicted box is dashed: where it is right, the gold one shows through
    boxes = [(box, "#2ca02c", "") for box in gold]
    boxes += [(maps.predicted, "#d62728", ' stroke-dasharray="6 5"')] if maps.predicted else []
    for column, name in enumerate(("image", *PANELS)):
        x, y = 12 + column * (wide + 12), 48.0
        label = name if name == "image" else f"{name}: {float(maps.maps[name].sum()):.3f} on the image"
        parts.append(text(x, y - 6, label))
        parts.append(f'<image x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" href="{picture}"/>')
        if name != "image":
            parts += _overlay(maps.maps[name], maps.cells, x, y, wide, tall)
        for box, ink, dash in boxes:
            parts.append(
                f'<rect x="{x + box[0] * scale:.2f}" y="{y + box[1] * scale:.2f}" '
                f'width="{(box[2] - box[0]) * scale:.2f}" '
                f'height="{(box[3] - box[1]) * scale:.2f}" fill="none" stroke="{ink}" stroke-width="2.5"{dash}/>'
            )
    bottom = 48 + tall + 20
    parts.append(text(12, bottom, f"answer: {maps.answer[:120]}"))
    parts.append(text(12, bottom + 18, _legend(maps, bool(gold)), size=10))
    parts += _curves(maps, condition, 12, bottom + 36, 4 * wide)
    height = bottom + 250
    return svg(24 + 4 * (wide + 12), height, parts, title or "Attention maps")


def _legend(maps: Maps, gold: bool) -> str:
    said = ["the more yellow, the more attention, each map against its own maximum"]
    said += ["green: the referent"] if gold else []
    said += ["red, dashed: the predicted box"] if maps.predicted else []
    return "; ".join(said)


def _embedded(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _overlay(
    values: NDArray[np.float64], cells: NDArray[np.float64], x: float, y: float, wide: float, tall: float
) -> list[str]:
    """Cells over the image: the stronger the attention (of this map's own maximum), the less transparent."""
    largest = float(values.max()) or 1.0
    parts = [f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" fill="#000" fill-opacity="0.35"/>']
    for value, cell in zip(values, cells, strict=True):
        if np.isnan(cell).any():
            continue
        x0, y0, x1, y1 = cell
        parts.append(
            f'<rect x="{x + x0 * wide:.2f}" y="{y + y0 * tall:.2f}" width="{(x1 - x0) * wide:.2f}" '
            f'height="{(y1 - y0) * tall:.2f}" fill="#ffd21f" fill-opacity="{0.85 * value / largest:.3f}">'
            f"<title>{value:.4g}</title></rect>"
        )
    return parts


def _curves(maps: Maps, condition: Condition | None, x: float, y: float, width: float) -> list[str]:
    """Attention on the referent by layer: before solid, under the intervention dashed."""
    inks = dict(zip(PANELS, ("#1f77b4", "#d62728", "#7f7f7f"), strict=True))
    series = [(name, maps.referent[name], inks[name], "") for name in PANELS]
    series += [(name, maps.after[name], inks[name], ' stroke-dasharray="5 4"') for name in PANELS if maps.after]
    top = max(float(np.nanmax(v)) for _, v, _, _ in series if not np.isnan(v).all()) or 1.0
    layers = len(maps.referent[PANELS[0]])
    left, right, base, high = x + 44, x + width - 180, y + 180, y + 24
    what = f"; dashed: {condition.name} on the set" if condition is not None and maps.after else ""
    parts = [text(x, y + 10, f"attention on {maps.where} from the {ROW_WORDS[maps.rows]}, by layer{what}")]
    parts.append(f'<path d="M{left:g} {high:g}V{base:g}H{right:g}" fill="none" stroke="currentColor"/>')
    parts.append(text(left - 4, high + 4, f"{top:.2g}", "end", 10))
    parts.append(text(left - 4, base, "0", "end", 10))
    parts.append(text(left, base + 14, "layer 0", size=10))
    parts.append(text(right, base + 14, f"layer {layers - 1}", "end", 10))
    for row, (name, values, ink, dash) in enumerate(series):
        points = []
        for layer, value in enumerate(values):
            if not np.isnan(value):
                at = left + (right - left) * (layer / max(1, layers - 1))
                points.append((at, base - (base - high) * float(value) / top))
        if points:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{ink}" stroke-width="1.8"{dash}/>')
            fill = "#fff" if dash else ink  # a set within one layer is points alone: hollow ones are under intervention
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.4" fill="{fill}" stroke="{ink}"/>' for a, b in points]
        parts.append(
            f'<path d="M{right + 14:g} {high + row * 16:g}h22" stroke="{ink}" stroke-width="1.8"{dash}/>'
            + text(right + 42, high + 4 + row * 16, name + (" (after)" if dash else ""), size=10)
        )
    return parts
