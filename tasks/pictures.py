"""Pictures, described as plain data and painted on demand.

Kinds, each a JSON mapping with ``kind``:

- ``row``: image of a data row {row, column, sha}
- ``blank``: uniform grey, as large as another picture {like}
- ``grid``: cells in reading order, each fitted into w x h pixels {cells, cell: [w, h], columns, fit, gap}
- ``erase``: boxes of a picture filled with grey {base, boxes}
- ``caption``: a picture above a band with a text, together w x h pixels {base, text, size: [w, h]}
- ``marks``: labelled frames on a picture {base, boxes, labels}

Painting is a pure function of the description and the data, so every rank and every resumed run sees equal pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, Protocol

from PIL import Image, ImageDraw, ImageFont, ImageOps

from harness_heads.regions import Box, grid_cells, iou
from harness_heads.tasks.items import Picture

GREY = 127  # level of blank pictures and erased cells
BAND = 0.22  # share of a captioned picture's height that the caption takes
FRAME_COLOURS = ("#e6194b", "#0047ff", "#3cb44b", "#f58231", "#911eb4", "#008080")


class Images(Protocol):
    """Where ``row`` pictures come from: :class:`harness_heads.tasks.data.Source`."""

    def image(self, row: int, column: str) -> Image.Image:
        """The row's image as RGB, made safe."""


def blank(like: Picture) -> Picture:
    """A grey picture of the same size."""
    return {"kind": "blank", "like": like}


def grid(cells: Sequence[Picture], cell: tuple[int, int], fit: str, columns: int = 2, gap: int = 0) -> Picture:
    """A grid of pictures; ``gap`` white pixels are drawn over every inner border, sizes stay whole cells."""
    return {"kind": "grid", "cells": list(cells), "cell": list(cell), "columns": columns, "fit": fit, "gap": gap}


def grid_boxes(picture: Picture) -> tuple[Box, ...]:
    """Pixel boxes of a grid's cells in reading order."""
    columns, (w, h) = picture["columns"], picture["cell"]
    rows = -(-len(picture["cells"]) // columns)
    return grid_cells(w * columns, h * rows, columns, rows)


def erase(base: Picture, boxes: Sequence[Box]) -> Picture:
    """The picture with boxes filled in grey: information removed in pixels, nothing left to leak."""
    return {"kind": "erase", "base": base, "boxes": [list(box) for box in boxes]}


def caption(base: Picture, text: str, size: tuple[int, int]) -> Picture:
    """The picture with a text in a band under it, hiding nothing of it; an empty text keeps the band."""
    return {"kind": "caption", "base": base, "text": text, "size": list(size)}


def marks(base: Picture, boxes: Sequence[Sequence[float]], labels: Sequence[str]) -> Picture:
    """The picture with frames, labelled where the label is not empty."""
    return {"kind": "marks", "base": base, "boxes": [list(b) for b in boxes], "labels": list(labels)}


def paint(picture: Picture, images: Images) -> Image.Image:
    """Paint a description as an RGB image."""
    image: Image.Image = _PAINTERS[picture["kind"]](picture, images)
    return image


def _row(picture: Picture, images: Images) -> Image.Image:
    return images.image(picture["row"], picture["column"])


def _blank(picture: Picture, images: Images) -> Image.Image:
    return Image.new("RGB", _size(picture["like"], images), (GREY, GREY, GREY))


def _size(picture: Picture, images: Images) -> tuple[int, int]:
    if picture["kind"] == "grid":  # known without decoding a photo
        last = grid_boxes(picture)[-1]
        return round(last[2]), round(last[3])
    return paint(picture, images).size


def _grid(picture: Picture, images: Images) -> Image.Image:
    w, h = picture["cell"]
    canvas = Image.new("RGB", _size(picture, images), "white")
    boxes = grid_boxes(picture)
    for cell, box in zip(picture["cells"], boxes, strict=True):
        fitted = fit_into(paint(cell, images), w, h, picture["fit"])
        canvas.paste(fitted, (round(box[0]), round(box[1])))
    if picture["gap"]:
        _draw_gaps(canvas, boxes, picture["gap"])
    return canvas


def fit_into(image: Image.Image, width: int, height: int, fit: str) -> Image.Image:
    """Fit an image into width x height: ``cover`` cuts its edges, ``contain`` leaves white margins."""
    if image.size == (width, height):
        return image
    if fit == "cover":
        return ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS)
    return ImageOps.pad(image, (width, height), Image.Resampling.LANCZOS, color="white")


def _draw_gaps(canvas: Image.Image, boxes: Sequence[Box], gap: int) -> None:
    draw, before = ImageDraw.Draw(canvas), gap // 2
    for x in sorted({round(box[0]) for box in boxes} - {0}):
        draw.rectangle((x - before, 0, x - before + gap - 1, canvas.height - 1), fill="white")
    for y in sorted({round(box[1]) for box in boxes} - {0}):
        draw.rectangle((0, y - before, canvas.width - 1, y - before + gap - 1), fill="white")


def _erase(picture: Picture, images: Images) -> Image.Image:
    image = paint(picture["base"], images).copy()
    draw = ImageDraw.Draw(image)
    for x0, y0, x1, y1 in picture["boxes"]:
        draw.rectangle((round(x0), round(y0), round(x1) - 1, round(y1) - 1), fill=(GREY, GREY, GREY))
    return image


def _caption(picture: Picture, images: Images) -> Image.Image:
    w, h = picture["size"]
    canvas = Image.new("RGB", (w, h), "white")
    above = round(h * (1 - BAND))
    canvas.paste(fit_into(paint(picture["base"], images), w, above, "contain"), (0, 0))
    if picture["text"].strip():
        draw = ImageDraw.Draw(canvas)
        text, font = _wrapped(draw, picture["text"], w, h - above)
        draw.multiline_text((w / 2, (above + h) / 2), text, font=font, fill="black", align="center", anchor="mm")
    return canvas


def _wrapped(draw: ImageDraw.ImageDraw, text: str, width: int, height: int) -> tuple[str, Any]:
    """Text broken into lines, in the largest size up to half of the band that fits it with a margin (at least 8 px)."""
    size = max(8, height // 2)
    while True:
        font = ImageFont.load_default(size)
        lines = [""]
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if not lines[-1] or draw.textlength(longer, font=font) <= width * 0.94:
                lines[-1] = longer
            else:
                lines.append(word)
        said = "\n".join(lines)
        box = draw.multiline_textbbox((0, 0), said, font=font)
        if size <= 8 or (box[2] - box[0] <= width * 0.96 and box[3] - box[1] <= height * 0.75):
            return said, font
        size -= 1


def _marks(picture: Picture, images: Images) -> Image.Image:
    image = paint(picture["base"], images).copy()
    draw = ImageDraw.Draw(image)
    line, font = max(1, min(image.size) // 150), _label_font(draw, picture["labels"], image.size)
    taken: list[Box] = []
    drawn = list(zip(picture["boxes"], picture["labels"], cycle(FRAME_COLOURS), strict=False))
    for box, _, colour in drawn:
        draw.rectangle(tuple(box), outline=colour, width=line)
    for (x0, y0, x1, y1), label, colour in drawn:
        if not label:
            continue
        text_box = draw.textbbox((0, 0), label, font=font)
        w, h = text_box[2] - text_box[0] + 4, text_box[3] - text_box[1] + 4
        tag = _free_place((x0, y0, x1, y1), (w, h), image.size, taken)
        taken.append(tag)
        draw.rectangle(tag, fill=colour)
        draw.text((tag[0] + 2 - text_box[0], tag[1] + 2 - text_box[1]), label, font=font, fill="white")
    return image


def _label_font(draw: ImageDraw.ImageDraw, labels: Sequence[str], size: tuple[int, int]) -> Any:
    """A font in which labels are readable, and at most two fifths of the picture wide: they must not hide it."""
    points, longest = max(12, min(size) // 25), max(labels, key=len, default="")
    while points > 6 and draw.textlength(longest, font=ImageFont.load_default(points)) > 0.4 * size[0]:
        points -= 1
    return ImageFont.load_default(points)


def _free_place(box: Box, label: tuple[float, float], size: tuple[int, int], taken: Sequence[Box]) -> Box:
    """Where a label goes: above its box, else below, else inside, wherever no label is yet; above, if nowhere."""
    (x0, y0, _, y1), (w, h) = box, label
    left = min(max(0.0, x0), max(0.0, size[0] - w))
    places = [(left, top, left + w, top + h) for top in (y0 - h, y1, y0, y1 - h) if 0 <= top <= size[1] - h]
    free = [p for p in places if not any(iou(p, other) for other in taken)]
    return next(iter((*free, *places)), (left, 0.0, left + w, h))


_PAINTERS: dict[str, Any] = {
    "row": _row,
    "blank": _blank,
    "grid": _grid,
    "erase": _erase,
    "caption": _caption,
    "marks": _marks,
}
