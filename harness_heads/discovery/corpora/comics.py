"""Comic strips with a caption a panel: ``baulab/openai-comic-strips``, 500 strips of six panels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness_heads.discovery.corpora.rows import open_rows, picture, provenance
from harness_heads.discovery.corpora.strips import COMIC_WORDING, PANELS, Wording, stitch
from harness_heads.discovery.samples import Sample

IDS = ("baulab/openai-comic-strips",)
SPLIT = "train"
_COLUMNS = (
    "comic_id",
    *(f"panel_{i}" for i in range(1, PANELS + 1)),
    *(f"caption_{i}" for i in range(1, PANELS + 1)),
)


class Comics:
    """One strip a row; the data set has panels, the strip is stitched here."""

    name = "comics"

    def __init__(self, local: Path | None = None, wording: Wording = COMIC_WORDING) -> None:
        self._rows = open_rows(IDS, SPLIT, "data/*.parquet", _COLUMNS, local)
        self._wording = wording
        self.provenance: Mapping[str, Any] = {
            "corpus": self.name,
            **provenance(self._rows, IDS, SPLIT, local),
            "wording": vars(wording),
        }

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, index: int, query: str) -> Sample:
        """Strip ``index``."""
        row = self._rows[index]
        name = f"comic {row['comic_id']}"
        panels = [picture(row[f"panel_{i}"], f"{name}, panel {i}") for i in range(1, PANELS + 1)]
        captions = [str(row[f"caption_{i}"]) for i in range(1, PANELS + 1)]
        strip, regions = stitch(panels, name)
        return Sample(name, name, (strip,), regions, self._wording.asks(captions, query, name))
