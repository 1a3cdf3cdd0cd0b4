"""Paper B's corpora: one picture, one phrase, one box (RefCOCO family, Toloka, RefSpatial)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from harness_heads.discovery.corpora.rows import open_rows, picture, provenance
from harness_heads.discovery.samples import Ask, CorruptImageError, Sample, boxes_region, open_image, phrase_in
from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import Box, Region


@dataclass(frozen=True)
class Recipe:
    """Where a grounding data set is and how a row of it reads.

    Attributes:
        ids: hub ids, tried in order.  split, files: the split and its files.  columns: those that are needed.
        read: row, picture folder and row number to picture, phrase, box in pixels, and the image's name.
    """

    ids: tuple[str, ...]
    split: str
    files: str
    columns: tuple[str, ...]
    read: Callable[[Mapping[str, Any], Path | None, int], tuple[Image.Image, str, Box, str]]


def _refcoco(row: Mapping[str, Any], folder: Path | None, number: int) -> tuple[Image.Image, str, Box, str]:
    """xywh in pixels of the original; the expressions are the *answers* (``question`` is constant)."""
    name = str(row["file_name"])
    phrases = [str(p) for p in row["answer"]]
    # which of several expressions is asked must not hang on chance: the seed is in the row number's stream
    phrase = phrases[int(np.random.default_rng([number, 0x2EF]).integers(len(phrases)))]
    x, y, w, h = (float(v) for v in row["bbox"])
    # COCO_train2014_000000296747_0.jpg: the running index after the image's id is the object, not the picture
    return picture(row["image"], name), phrase, (x, y, x + w, y + h), name.rsplit("_", 1)[0]


def _toloka(row: Mapping[str, Any], folder: Path | None, number: int) -> tuple[Image.Image, str, Box, str]:
    """xyxy in pixels; the data set holds URLs alone, pictures come from a local folder."""
    name = str(row["image"]).rsplit("/", 1)[-1]
    if folder is None:
        raise HarnessHeadsError(
            "corpus toloka: the data set names its pictures by URLs that no longer answer; give --data FOLDER with the "
            "table and the pictures (doi:10.5281/zenodo.7057740)"
        )
    found = next((p for p in (folder / name, folder / "images" / name) if p.exists()), folder / name)
    box = (float(row["left"]), float(row["top"]), float(row["right"]), float(row["bottom"]))
    return open_image(found, name), str(row["question"]), box, name


def _refspatial(row: Mapping[str, Any], folder: Path | None, number: int) -> tuple[Image.Image, str, Box, str]:
    """The mask's bounding box; the benchmark asks for points, paper B for boxes."""
    name = f"refspatial {row['id']}"
    image = picture(row["image"], name)
    mask = np.asarray(picture(row["mask"], f"{name}, mask").convert("L")) > 0
    if not mask.any():
        raise CorruptImageError(f"{name}: its mask is empty")
    ys, xs = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    scale_x, scale_y = image.width / mask.shape[1], image.height / mask.shape[0]
    box = (float(xs[0] * scale_x), float(ys[0] * scale_y), float((xs[-1] + 1) * scale_x), float((ys[-1] + 1) * scale_y))
    return image, str(row["object"]), box, name


def _refcoco_recipe(name: str) -> Recipe:
    return Recipe(
        (f"lmms-lab-encoder/{name}", f"lmms-lab/{name}"),
        "val",
        "data/val-*.parquet",
        ("image", "answer", "bbox", "file_name"),
        _refcoco,
    )


RECIPES: Mapping[str, Recipe] = {
    "refcoco": _refcoco_recipe("RefCOCO"),
    "refcoco-plus": _refcoco_recipe("RefCOCOplus"),
    "refcocog": _refcoco_recipe("RefCOCOg"),
    "toloka": Recipe(
        ("toloka/WSDMCup2023",),
        "train_sample",
        "train_sample*.parquet",
        ("image", "question", "left", "top", "right", "bottom"),
        _toloka,
    ),
    "refspatial": Recipe(
        ("BAAI/RefSpatial-Bench", "JingkunAn/RefSpatial-Bench"),
        "location",
        "data/location-*.parquet",
        ("id", "image", "mask", "object"),
        _refspatial,
    ),
}


class Grounding:
    """One sample a row, asked by the model family's own grounding prompt; clusters are pictures."""

    def __init__(self, name: str, seed: int, prompt: str, local: Path | None = None) -> None:
        self.name = name
        self._recipe = RECIPES[name]
        self._folder = local
        self._template = prompt.replace("{expression}", "{}")
        self._seed = seed
        recipe = self._recipe
        self._rows = open_rows(recipe.ids, recipe.split, recipe.files, recipe.columns, local)
        self.provenance: Mapping[str, Any] = {
            "corpus": name,
            **provenance(self._rows, recipe.ids, recipe.split, local),
            "prompt": prompt,
            "seed": seed,
        }

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, index: int, query: str) -> Sample:
        """Row ``index``; ``query`` must be ``loc``."""
        if query != "loc":
            raise HarnessHeadsError(f"corpus {self.name}: it is asked for boxes, not {query!r}")
        image, phrase, box, cluster = self._recipe.read(self._rows[index], self._folder, index + 1_000_003 * self._seed)
        region: Region = boxes_region([box])
        text, span = phrase_in(self._template, phrase)
        return Sample(f"{self.name} {index}", cluster, (image,), {"referent": region}, (Ask(text, span, "referent"),))
