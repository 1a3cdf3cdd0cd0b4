"""Regions of an image as shown to the model, and images made safe once and for all.

A region is a union of boxes in pixels of one image *as shown* (after EXIF, mode and size treatment, before the
processor's own resizing); :mod:`harness_heads.layouts` maps it to token positions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageFile, ImageOps

from harness_heads.errors import HarnessHeadsError

Box = tuple[float, float, float, float]
"""``(x0, y0, x1, y1)`` in pixels, x0 < x1, y0 < y1."""

MIN_SIDE = 28  # Qwen processors refuse thinner images
MAX_ASPECT = 200  # and more elongated ones


@dataclass(frozen=True)
class Region:
    """A union of boxes on image number ``image`` of the prompt (0-based)."""

    boxes: tuple[Box, ...]
    image: int = 0

    def __post_init__(self) -> None:
        if not self.boxes:
            raise HarnessHeadsError("region: no box; give at least one")
        for box in self.boxes:
            if not all(math.isfinite(v) for v in box):
                raise HarnessHeadsError(f"region: box {box} holds a value that is not finite")
            if box[0] >= box[2] or box[1] >= box[3]:
                raise HarnessHeadsError(f"region: box {box} has no area; order it as x0 < x1, y0 < y1")

    def inside(self, width: int, height: int, what: str) -> Region:
        """The region clipped to the image; an error that names ``what`` if nothing of a box lies inside."""
        clipped = []
        for x0, y0, x1, y1 in self.boxes:
            box = (max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1))
            if box[0] >= box[2] or box[1] >= box[3]:
                raise HarnessHeadsError(f"{what}: box {(x0, y0, x1, y1)} lies outside the {width}x{height} image")
            clipped.append(box)
        return Region(tuple(clipped), self.image)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {"boxes": [list(box) for box in self.boxes], "image": self.image}


def region_from_dict(value: Mapping[str, Any]) -> Region:
    """Read what :meth:`Region.to_dict` wrote."""
    return Region(tuple((b[0], b[1], b[2], b[3]) for b in value["boxes"]), value["image"])


def grid_cells(width: int, height: int, columns: int, rows: int) -> tuple[Box, ...]:
    """The cells of an evenly divided image in reading order."""
    w, h = width / columns, height / rows
    return tuple((c * w, r * h, (c + 1) * w, (r + 1) * h) for r in range(rows) for c in range(columns))


def iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes, in [0, 1]."""
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    if w <= 0 or h <= 0:
        return 0.0
    overlap = w * h
    return overlap / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - overlap)


def decode(image: Image.Image) -> None:
    """Read the pixels; a truncated file raises OSError, whatever the process was told before.

    lmms-eval switches Pillow to fill truncated images with grey for the whole process, silently; that is no image.
    """
    lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        image.load()
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient


def safe_image(image: Image.Image, what: str) -> Image.Image:
    """The image as RGB, as a viewer would show it.

    EXIF orientation is applied, transparency is composited on white (a plain conversion reveals the hidden colour),
    16-bit greys are scaled to 8 bits (a plain conversion saturates), CMYK and palettes are converted.

    Raises:
        HarnessHeadsError: naming ``what``, if a side is under 28 px or the aspect ratio is over 200.
    """
    check_size(*image.size, what)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _scale_deep_grey(image).convert("RGB")
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert("RGB")


def check_size(width: int, height: int, what: str) -> None:
    """Raise, naming ``what``, for an image that processors refuse: thinner than 28 px or more elongated than 200:1."""
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise HarnessHeadsError(f"{what}: image of {width}x{height} px is more elongated than {MAX_ASPECT}:1")
    if min(width, height) < MIN_SIDE:
        raise HarnessHeadsError(f"{what}: image of {width}x{height} px is thinner than {MIN_SIDE} px")


def _scale_deep_grey(image: Image.Image) -> Image.Image:
    """8-bit version of a deep grey image.

    16-bit images are scaled by their full range. 32-bit and float images carry no range: values up to 1 (float only),
    up to 255 or beyond are read as fractions, bytes and 16-bit values. Values that are not finite become black.
    """
    import numpy as np

    values = np.nan_to_num(np.asarray(image, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if image.mode.startswith("I;16") or values.max() > 255:
        top = 65535.0
    else:
        top = 1.0 if image.mode == "F" and values.max() <= 1 else 255.0
    return Image.fromarray(np.clip(values / top * 255.0 + 0.5, 0, 255).astype(np.uint8), mode="L")


def image_sha(image: Image.Image) -> str:
    """SHA-256 of mode, size and pixels (first 16 hex digits): what was shown, whatever file it came from."""
    digest = hashlib.sha256(f"{image.mode}{image.size}".encode())
    digest.update(image.tobytes())
    return digest.hexdigest()[:16]
