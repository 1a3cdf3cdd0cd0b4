"""Digit strips of the embedded model: six different digits side by side, from the discover split alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness_heads.discovery.corpora.strips import PANELS, panel_name
from harness_heads.discovery.samples import Ask, Sample
from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import Region
from harness_heads.tiny import data, wording

SPLIT = "discover"


class Digits:
    """Strips are made on demand: strip ``i`` of a seed is the same whatever else is asked for."""

    name = "digits"

    def __init__(self, seed: int, size: int = 100_000) -> None:
        self._seed = seed
        self._size = size
        self._images, self._labels = data.digits(SPLIT)
        digest = hashlib.sha256(self._images.tobytes()).hexdigest()[:16]
        self.provenance: Mapping[str, Any] = {
            "corpus": self.name,
            "split": SPLIT,
            "images": len(self._images),
            "images_sha256": digest,
            "seed": seed,
            "strip": "six different digits, each image drawn uniformly from its class",
        }

    def __len__(self) -> int:
        return self._size

    def sample(self, index: int, query: str) -> Sample:
        """Strip ``index``; both queries see the same strip."""
        rng = np.random.default_rng([self._seed, index])
        shown = rng.permutation(10)[:PANELS]
        cells = []
        for digit in shown:
            own = np.flatnonzero(self._labels == digit)
            cells.append(data.render_cell(self._images[rng.choice(own)], rng))
        strip = data.strip(cells)
        width = data.CELL
        regions = {
            panel_name(i): Region(((float(i * width), 0.0, float((i + 1) * width), float(width)),))
            for i in range(PANELS)
        }
        name = f"digits-{self._seed}-{index}"
        return Sample(name, name, (strip,), regions, tuple(self._ask(query, i, int(d)) for i, d in enumerate(shown)))

    @staticmethod
    def _ask(query: str, panel: int, digit: int) -> Ask:
        if query == "ref":
            return Ask(
                wording.referring(digit), wording.referring_span(digit), panel_name(panel), wording.ORDINALS[panel]
            )
        if query == "ord":
            return Ask(wording.ordinal(panel), wording.ordinal_span(panel), panel_name(panel), wording.DIGITS[digit])
        if query == "loc":
            phrase = f"the digit {wording.DIGITS[digit]}"
            text = wording.locate(digit)
            x0, x1 = round(1000 * panel / PANELS), round(1000 * (panel + 1) / PANELS)
            answer = wording.box_answer(x0, 0, x1, 1000)
            return Ask(text, wording.span_of(text, phrase), panel_name(panel), answer)
        raise HarnessHeadsError(f"corpus digits: no query {query!r} (known: ord, ref, loc)")
