"""COCO strips: six photographs side by side, each with a caption; regions are the photographs' places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness_heads.discovery.corpora.rows import open_rows, picture, provenance
from harness_heads.discovery.corpora.strips import PANELS, PHOTO_WORDING, Wording, stitch
from harness_heads.discovery.samples import Sample

IDS = ("lmms-lab-encoder/COCO-Caption2017", "lmms-lab/COCO-Caption2017")
SPLIT = "val"


class CocoStrips:
    """Photographs are dealt to strips by a seeded shuffle; every photograph is used once."""

    name = "coco"

    def __init__(self, seed: int, local: Path | None = None, wording: Wording = PHOTO_WORDING) -> None:
        self._rows = open_rows(IDS, SPLIT, "data/val-*.parquet", ("image", "answer", "file_name"), local)
        self._wording = wording
        self._order = np.random.default_rng([seed, 0xC0C0]).permutation(len(self._rows))
        self.provenance: Mapping[str, Any] = {
            "corpus": self.name,
            **provenance(self._rows, IDS, SPLIT, local),
            "seed": seed,
            "caption": "the first of each photograph",
            "wording": vars(wording),
        }

    def __len__(self) -> int:
        return len(self._rows) // PANELS

    def sample(self, index: int, query: str) -> Sample:
        """Strip ``index``."""
        rows = [self._rows[int(i)] for i in self._order[index * PANELS : (index + 1) * PANELS]]
        name = f"coco strip {index}"
        panels = [picture(row["image"], f"{name}, {row['file_name']}") for row in rows]
        strip, regions = stitch(panels, name)
        captions = [str(row["answer"][0]) for row in rows]
        return Sample(name, name, (strip,), regions, self._wording.asks(captions, query, name))
