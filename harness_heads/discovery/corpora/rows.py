"""Rows of a data set, local or from the hub, with images left undecoded so that a corrupt one can be named."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from harness_heads.discovery.samples import CorruptImageError, open_image
from harness_heads.errors import HarnessHeadsError

DATA_ROOT = "HARNESS_HEADS_DATA"
"""Environment variable: folder of local copies, laid out as ``<owner>/<name>``."""


def open_rows(identifiers: Sequence[str], split: str, files: str, columns: Sequence[str], local: Path | None) -> Any:
    """A split of a data set as a ``datasets.Dataset`` with undecoded images.

    Args:
        identifiers: hub ids, tried in order (data sets move between owners).
        split: split to open.
        files: pattern of the split's files inside the repository, so that nothing else is downloaded.
        columns: columns that the recipe needs.
        local: folder of a local copy (parquet files, or written by ``save_to_disk``); by default one under
            ``HARNESS_HEADS_DATA``, then the hub.

    Raises:
        HarnessHeadsError: a local copy without data, a hub out of reach, or a missing column.
    """
    place = local or _under_root(identifiers)
    data = _open_local(place, split) if place is not None else _open_hub(identifiers, split, files)
    missing = [c for c in columns if c not in data.column_names]
    if missing:
        where = place or identifiers[0]
        raise HarnessHeadsError(
            f"data {where}: no column {', '.join(missing)} (there is: {', '.join(data.column_names)})"
        )
    return _undecoded(data)


def _under_root(identifiers: Sequence[str]) -> Path | None:
    root = os.environ.get(DATA_ROOT)
    if not root:
        return None
    return next((p for name in identifiers if (p := Path(root).expanduser() / name).exists()), None)


def _open_local(place: Path, split: str) -> Any:
    import datasets

    if not place.exists():
        raise HarnessHeadsError(f"data {place}: it does not exist")
    if (place / "dataset_dict.json").exists() or (place / "dataset_info.json").exists():
        stored = datasets.load_from_disk(str(place))
        if isinstance(stored, datasets.DatasetDict):
            if split not in stored:
                raise HarnessHeadsError(f"data {place}: no split {split!r} (there is: {', '.join(stored)})")
            return stored[split]
        return stored
    found = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
    # a file of the wanted split says so in its name; a copy without such names is taken whole
    wanted = [p for p in found if p.name.startswith(split)] or found
    if not wanted:
        raise HarnessHeadsError(f"data {place}: no parquet file and no saved data set in it")
    return datasets.load_dataset("parquet", data_files={split: [str(p) for p in wanted]}, split=split)


def _open_hub(identifiers: Sequence[str], split: str, files: str) -> Any:
    import datasets

    reasons = []
    for name in identifiers:
        try:
            return datasets.load_dataset("parquet", data_files={split: f"hf://datasets/{name}/{files}"}, split=split)
        except Exception as error:  # the hub's clients raise many types; whichever, the next id is tried
            reasons.append(f"{name}: {(str(error).strip().splitlines() or [type(error).__name__])[0][:120]}")
    raise HarnessHeadsError(
        f"data cannot be opened from the hub ({'; '.join(reasons)}); give a local copy with --data PATH, or put it "
        f"under ${DATA_ROOT} as <owner>/<name>"
    )


def _undecoded(data: Any) -> Any:
    import datasets

    for name, feature in data.features.items():
        if isinstance(feature, datasets.Image):
            data = data.cast_column(name, datasets.Image(decode=False))
    return data


def picture(value: Any, what: str) -> Image.Image:
    """The image of an undecoded column, made safe.

    Raises:
        CorruptImageError: naming ``what``.
    """
    if isinstance(value, Mapping):
        if value.get("bytes"):
            try:
                return open_image(Image.open(io.BytesIO(value["bytes"])), what)
            except (OSError, SyntaxError, ValueError) as error:
                if isinstance(error, HarnessHeadsError):
                    raise
                raise CorruptImageError(f"{what}: the image cannot be decoded ({error})") from error
        return open_image(Path(value["path"]) if value.get("path") else None, what)
    return open_image(value if isinstance(value, Image.Image) else None, what)


def provenance(data: Any, identifiers: Sequence[str], split: str, local: Path | None) -> dict[str, Any]:
    """What the corpus was: ids, split, rows, and the fingerprint that ``datasets`` gives its content."""
    return {
        "dataset": identifiers[0],
        "split": split,
        "rows": len(data),
        "fingerprint": data._fingerprint,
        "opened": "local copy" if local is not None else "hub or $HARNESS_HEADS_DATA",
    }
