"""Source: rows of one split, images still encoded, whatever they were stored as."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.regions import check_size, decode, safe_image
from harness_heads.tasks.items import Picture

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_FIELD = re.compile(r"\{(\w+)\}")


WAY_OUT = "mend it, or leave such rows out with bad_images: skip in the task's YAML"


class BadImage(HarnessHeadsError):
    """A row whose image is missing, unreadable, too thin or too elongated; the message names the row."""


class Source(ABC):
    """Rows of one split.

    Attributes:
        label: what the rows are, for messages.
        columns: names of the columns.
        decode_first: decode every image when an item is built, so that a recipe can leave bad rows out.
        left_out: how many images were refused while decoding first.
    """

    label: str
    columns: tuple[str, ...]
    decode_first = False
    left_out = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def cell(self, row: int, column: str) -> Any:
        """The cell as stored; images stay encoded."""

    @abstractmethod
    def image(self, row: int, column: str) -> Image.Image:
        """The cell as an RGB image that models can take; an error names data, row and column."""

    @abstractmethod
    def sha(self, row: int, column: str) -> str:
        """16 hex digits over the stored image, without decoding it."""

    def value(self, row: int, column: str) -> Any:
        """The cell of a column, or of a template of columns such as ``"{image_id}.jpg"``."""
        fields = _FIELD.findall(column)
        if not fields:
            return self.cell(row, column)
        return column.format(**{name: self.cell(row, name) for name in fields})

    def names(self, column: str) -> tuple[str, ...] | None:
        """Class names of an integer label column, ``None`` where the column is no such thing."""
        return None

    def picture(self, row: int, column: str) -> Picture:
        """Description of a row's image; :class:`BadImage` if there is none that models can take.

        Whether it is there, and its size, is looked at here, before any model runs; the pixels only with
        ``decode_first``, because decoding every image of a large set takes minutes.
        """
        try:
            if self.decode_first:
                self.image(row, column)
            else:
                self.look(row, column)
        except BadImage:
            self.left_out += 1
            raise
        return {"kind": "row", "row": row, "column": column, "sha": self.sha(row, column)}

    def look(self, row: int, column: str) -> None:  # noqa: B027 - a source of sound images has nothing to check
        """Check what can be checked without decoding: format, size, aspect ratio."""

    def need(self, column: str) -> str:
        """The column's name, or template; an error lists what there is."""
        for name in _FIELD.findall(column) or [column]:
            if name not in self.columns:
                raise HarnessHeadsError(
                    f"{self.label}: there is no column {name!r}{did_you_mean(name, self.columns)} "
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

    def cell(self, row: int, column: str) -> Any:
        return int(self._labels[row]) if column == "label" else self._pixels[row]

    def image(self, row: int, column: str) -> Image.Image:
        # the shift belongs to the row: a digit looks the same wherever an item shows it
        return self._render(self._pixels[row], np.random.default_rng([self._SHIFT_SEED, row]))

    def sha(self, row: int, column: str) -> str:
        return hashlib.sha256(self._pixels[row].tobytes()).hexdigest()[:16]

    def names(self, column: str) -> tuple[str, ...] | None:
        return self._words if column == "label" else None


class EncodedSource(Source):
    """Rows whose images are ``{"bytes", "path"}``, raw bytes, a path, or a URL of which a local copy exists.

    Args:
        columns: names of the columns.
        names: class names of integer label columns.
        label: what the rows are, for messages.
        folder: where relative image paths start, and where images are looked up by name.
    """

    def __init__(
        self, columns: Sequence[str], names: Mapping[str, Sequence[str]], label: str, folder: Path | None = None
    ) -> None:
        self._names, self._folder = names, folder
        self._files: dict[str, list[Path]] | None = None
        self.label, self.columns = label, tuple(columns)

    def names(self, column: str) -> tuple[str, ...] | None:
        return tuple(self._names[column]) if column in self._names else None

    def image(self, row: int, column: str) -> Image.Image:
        with self._opened(row, column) as image:
            decode(image)
            return safe_image(image, self._where(row, column))

    def look(self, row: int, column: str) -> None:
        with self._opened(row, column) as image:
            check_size(*image.size, self._where(row, column))

    def _where(self, row: int, column: str) -> str:
        """Data, row, column and, where the image is a file, its name: nobody counts rows of a folder."""
        cell = self.value(row, column)
        name = cell.get("path") if isinstance(cell, Mapping) else cell
        file = f" ({name})" if isinstance(name, str) and 0 < len(name) < 200 else ""
        return f"{self.label}: row {row}{file}, column {column!r}"

    @contextmanager
    def _opened(self, row: int, column: str) -> Iterator[Image.Image]:
        """The image, its pixels not read yet; whatever goes wrong inside is a :class:`BadImage` that names the row."""
        try:
            with Image.open(io.BytesIO(self._encoded(row, column))) as image:
                yield image
        except BadImage:
            raise
        except HarnessHeadsError as error:
            raise BadImage(f"{error}; {WAY_OUT}") from error
        except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            told = str(error).split(" <_io.")[0]  # Pillow quotes the address of our buffer
            raise BadImage(f"{self._where(row, column)}: this is no readable image ({told}); {WAY_OUT}") from error

    def sha(self, row: int, column: str) -> str:
        return hashlib.sha256(self._encoded(row, column)).hexdigest()[:16]

    def _encoded(self, row: int, column: str) -> bytes:
        where, cell = self._where(row, column), self.value(row, column)
        if isinstance(cell, Mapping):
            if cell.get("bytes"):
                return bytes(cell["bytes"])
            cell = cell.get("path")
        if isinstance(cell, (bytes, bytearray)):
            return bytes(cell)
        if not isinstance(cell, str) or not cell:
            raise BadImage(f"{where}: there is no image (found {json.dumps(cell, default=str)[:60]}); {WAY_OUT}")
        path = self._file(cell)
        if path is None:
            copy = self._folder or "(none is given)"
            raise BadImage(f"{where}: image {cell} is not in the local copy {copy}; {WAY_OUT}")
        try:
            return path.read_bytes()
        except OSError as error:
            raise BadImage(f"{where}: image file {path} cannot be read ({error.strerror}); {WAY_OUT}") from error

    def _file(self, name: str) -> Path | None:
        """A local file for a path or URL: as it stands, under the folder, or the only one below it of that name.

        Raises:
            BadImage: if several files below the folder bear the name; which is meant cannot be told.
        """
        if "://" not in name:
            path = Path(name)
            if path.is_absolute() or self._folder is None:
                return path
            if (self._folder / path).is_file():
                return self._folder / path
        if self._folder is None:
            return None
        if self._files is None:
            self._files = {}
            for file in image_files(self._folder):
                self._files.setdefault(file.name, []).append(file)
        parts = name.split("/")
        found = self._files.get(parts[-1], [])
        while len(found) > 1 and len(parts) > 1:  # as many of the last folders as it takes
            parts.pop(0)
            found = [file for file in found if file.as_posix().endswith("/" + "/".join(parts))] or found
        if len(found) > 1:
            several = ", ".join(str(file.relative_to(self._folder)) for file in found[:3])
            raise BadImage(
                f"{self.label}: image {name} may be any of {len(found)} files ({several} ...); name its folder"
            )
        return found[0] if found else None


class RowsSource(EncodedSource):
    """Rows held as plain mappings."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[str],
        names: Mapping[str, Sequence[str]],
        label: str,
        folder: Path | None = None,
    ) -> None:
        super().__init__(columns, names, label, folder)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def cell(self, row: int, column: str) -> Any:
        return self._rows[row].get(self.need(column))


class TableSource(EncodedSource):
    """Rows of a ``datasets.Dataset`` whose images were left encoded; small columns are read once."""

    def __init__(self, table: Any, names: Mapping[str, Sequence[str]], images: Sequence[str], label: str) -> None:
        super().__init__(table.column_names, names, label)
        self._table = table
        # one column at a time: a row read whole would decode every picture of it
        self._images = {name: table.select_columns([name]) for name in images}
        self._read: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def cell(self, row: int, column: str) -> Any:
        self.need(column)
        if column in self._images:
            return self._images[column][row][column]
        if column not in self._read:
            self._read[column] = list(self._table.select_columns([column])[:][column])
        return self._read[column][row]


def image_files(folder: Path) -> list[Path]:
    """Every image file below a folder, sorted, hidden folders left out."""
    found = []
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += [Path(root) / f for f in sorted(files) if f.lower().endswith(IMAGE_SUFFIXES)]
    return found
