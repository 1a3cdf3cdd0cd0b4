"""Source: rows of one split, images still encoded, whatever they were stored as."""

from __future__ import annotations

import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.regions import safe_image
from harness_heads.tasks.items import Picture


class Source(ABC):
    """Rows of one split.

    Attributes:
        label: what the rows are, for messages.
        columns: names of the columns.
    """

    label: str
    columns: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def value(self, row: int, column: str) -> Any:
        """The cell as stored; images stay encoded."""

    @abstractmethod
    def image(self, row: int, column: str) -> Image.Image:
        """The cell as an RGB image that models can take; an error names data, row and column."""

    @abstractmethod
    def sha(self, row: int, column: str) -> str:
        """16 hex digits over the stored image, without decoding it."""

    def names(self, column: str) -> tuple[str, ...] | None:
        """Class names of an integer label column, ``None`` where the column is no such thing."""
        return None

    def picture(self, row: int, column: str) -> Picture:
        """Description of a row's image."""
        return {"kind": "row", "row": row, "column": column, "sha": self.sha(row, column)}

    def need(self, column: str) -> str:
        """The column's name; an error lists what there is."""
        if column not in self.columns:
            raise HarnessHeadsError(
                f"{self.label}: there is no column {column!r}{did_you_mean(column, self.columns)} "
                f"(columns: {', '.join(self.columns)}); map it under 'columns:' in the task's YAML"
            )
        return column


class DigitsSource(Source):
    """Handwritten digits that ship with the package: one 64 x 64 px cell a row; columns ``image`` and ``label``."""

    _SHIFT_SEED = 64

    def __init__(self, split: str) -> None:
        from harness_heads.tiny import data, wording

        try:
            self._pixels, self._labels = data.digits(split)
        except ValueError as error:
            raise HarnessHeadsError(f"harness-heads/digits: {error}") from error
        self._render, self._words = data.render_cell, tuple(wording.DIGITS)
        self.label, self.columns = f"harness-heads/digits:{split}", ("image", "label")

    def __len__(self) -> int:
        return len(self._labels)

    def value(self, row: int, column: str) -> Any:
        return int(self._labels[row]) if column == "label" else self._pixels[row]

    def image(self, row: int, column: str) -> Image.Image:
        # the shift belongs to the row: a digit looks the same wherever an item shows it
        return self._render(self._pixels[row], np.random.default_rng([self._SHIFT_SEED, row]))

    def sha(self, row: int, column: str) -> str:
        return hashlib.sha256(self._pixels[row].tobytes()).hexdigest()[:16]

    def names(self, column: str) -> tuple[str, ...] | None:
        return self._words if column == "label" else None


class RowsSource(Source):
    """Rows held as plain mappings; images as ``{"bytes", "path"}``, a path, or raw bytes."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[str],
        names: Mapping[str, Sequence[str]],
        label: str,
        folder: Path | None = None,
    ) -> None:
        self._rows, self._names, self._folder = rows, names, folder
        self.label, self.columns = label, tuple(columns)

    def __len__(self) -> int:
        return len(self._rows)

    def value(self, row: int, column: str) -> Any:
        return self._rows[row][self.need(column)]

    def names(self, column: str) -> tuple[str, ...] | None:
        return tuple(self._names[column]) if column in self._names else None

    def image(self, row: int, column: str) -> Image.Image:
        where = f"{self.label}: row {row}, column {column!r}"
        try:
            with Image.open(io.BytesIO(self._encoded(row, column))) as image:
                image.load()
                return safe_image(image, where)
        except HarnessHeadsError:
            raise
        except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise HarnessHeadsError(f"{where}: this is no readable image ({error})") from error

    def sha(self, row: int, column: str) -> str:
        return hashlib.sha256(self._encoded(row, column)).hexdigest()[:16]

    def _encoded(self, row: int, column: str) -> bytes:
        where, cell = f"{self.label}: row {row}, column {column!r}", self.value(row, column)
        if isinstance(cell, Mapping):
            if cell.get("bytes"):
                return bytes(cell["bytes"])
            cell = cell.get("path")
        if isinstance(cell, (bytes, bytearray)):
            return bytes(cell)
        if isinstance(cell, str) and cell:
            path = Path(cell)
            if not path.is_absolute() and self._folder is not None:
                path = self._folder / path
            try:
                return path.read_bytes()
            except OSError as error:
                raise HarnessHeadsError(f"{where}: image file {path} cannot be read ({error.strerror})") from error
        raise HarnessHeadsError(f"{where}: there is no image (found {json.dumps(cell, default=str)[:60]})")
