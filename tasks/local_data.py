"""Local copies of a data set: image folder, parquet, saved data set, JSON, JSON lines or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.plain import shown
from harness_heads.tasks.sources import RowsSource, Source, TableSource, image_files
from harness_heads.tasks.spec import DataRef

TABLES = (".parquet", ".json", ".jsonl", ".csv")
SPLIT_WORDS = ("train", "validation", "val", "test", "testa", "testb", "testmini", "dev")
METADATA = ("metadata.jsonl", "metadata.csv")


def open_local(path: Path, ref: DataRef, task: str) -> Source:
    """Open a local copy, restricted to the split, files and rows of the task.

    Raises:
        HarnessHeadsError: if the copy has no such split, or is nothing we can read.
    """
    if ref.name and (path / ref.name).is_dir():
        path = path / ref.name
    if path.is_dir() and ((path / "dataset_dict.json").exists() or (path / "state.json").exists()):
        return table_source(_saved(path, ref, task), ref, f"{task}: {path}")
    files = [path] if path.is_file() else _table_files(path, ref, task)
    if files and files[0].name not in METADATA:
        return _tables(files, path if path.is_dir() else path.parent, ref, task)
    if path.is_dir():
        return _image_folder(path, ref, task)
    raise HarnessHeadsError(f"{task}: {path} is no data set (image folder, parquet, saved data set, JSON or CSV)")


def table_source(table: Any, ref: DataRef, label: str) -> TableSource:
    """Wrap a ``datasets.Dataset``: images stay encoded, label names are kept, ``ref.rows`` cuts it."""
    import datasets

    images = [name for name, feature in table.features.items() if isinstance(feature, datasets.Image)]
    for name in images:
        table = table.cast_column(name, datasets.Image(decode=False))
    names = {name: f.names for name, f in table.features.items() if isinstance(f, datasets.ClassLabel)}
    if ref.rows is not None:
        table = table.select(range(min(ref.rows, len(table))))
    return TableSource(table, names, images, label)


def _saved(path: Path, ref: DataRef, task: str) -> Any:
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # datasets raises many kinds; all of them mean a damaged copy here
        raise HarnessHeadsError(f"{task}: {path} cannot be read as a saved data set ({_short(error)})") from error
    if not isinstance(saved, datasets.DatasetDict):
        return saved
    if ref.split is None and len(saved) == 1:
        return next(iter(saved.values()))
    if ref.split not in saved:
        raise _no_split(path, ref, task, tuple(saved))
    return saved[ref.split]


def _no_split(path: Path, ref: DataRef, task: str, known: Sequence[str]) -> HarnessHeadsError:
    wanted = f"there is no split {ref.split!r}" if ref.split else "no split is named under data.split"
    hint = did_you_mean(ref.split or "", known)
    return HarnessHeadsError(f"{task}: {path}: {wanted}{hint} (splits: {', '.join(known)})")


def _table_files(path: Path, ref: DataRef, task: str) -> list[Path]:
    """Table files of the split: those the YAML names, else those with the split in their path, else all of them."""
    found = sorted(
        f for f in path.rglob("*") if f.suffix in TABLES and f.is_file() and not f.name.startswith("dataset_info")
    )
    named = [f for f in found if any(_matches(f.relative_to(path).as_posix(), pattern) for pattern in ref.files)]
    if named or ref.split is None:
        return named or found
    words = {f: _split_word(f.relative_to(path)) for f in found}
    fitting = [f for f in found if words[f] == ref.split.lower()]
    if fitting:
        return fitting
    if any(words.values()):
        raise _no_split(path, ref, task, sorted({w for w in words.values() if w}))
    return found


def _matches(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) or fnmatch(name.rsplit("/", 1)[-1], pattern.rsplit("/", 1)[-1])


def _split_word(path: Path) -> str | None:
    """The split that a file's name or folder says: ``data/val-00000-of-00002.parquet`` -> ``val``."""
    for part in (path.stem, *reversed(path.parts[:-1])):
        first = part.lower().replace("_", "-").split("-")[0]
        if first in SPLIT_WORDS:
            return first
    return None


def _tables(files: Sequence[Path], folder: Path, ref: DataRef, task: str) -> Source:
    if files[0].suffix == ".parquet":
        import datasets

        datasets.disable_progress_bars()
        parquet = [str(f) for f in files if f.suffix == ".parquet"]
        try:
            table = datasets.load_dataset("parquet", data_files={"rows": parquet}, split="rows")
        except Exception as error:  # datasets raises many kinds; all of them mean an unreadable file here
            raise HarnessHeadsError(f"{task}: {files[0]} cannot be read as parquet ({_short(error)})") from error
        return table_source(table, ref, f"{task}: {folder}")
    rows: list[dict[str, Any]] = []
    for file in files:
        rows += read_rows(file, task)
    columns = list(dict.fromkeys(key for row in rows[:200] for key in row))
    return RowsSource(rows[: ref.rows], columns, {}, f"{task}: {folder}", folder)


def read_rows(file: Path, task: str) -> list[dict[str, Any]]:
    """Rows of a JSON list, JSON lines or CSV file."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            if file.suffix == ".csv":
                value: Any = list(csv.DictReader(stream, strict=True))
            elif file.suffix == ".jsonl":
                value = [json.loads(line) for line in stream if line.strip()]
            else:
                value = json.load(stream)
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise HarnessHeadsError(f"{task}: {file} cannot be read ({_short(error)})") from error
    if not isinstance(value, list):
        raise HarnessHeadsError(f"{task}: {file} is no JSON list of rows")
    for number, row in enumerate(value, start=1):
        if not isinstance(row, Mapping):
            raise HarnessHeadsError(f"{task}: {file}: row {number} is {shown(row)}; a row is an object of columns")
        if None in row:  # how the reader of CSV says that a row has more cells than the header
            raise HarnessHeadsError(f"{task}: {file}: row {number} has more cells than the header; quote its commas")
    return [dict(row) for row in value]


def _image_folder(path: Path, ref: DataRef, task: str) -> Source:
    """Images in folders named by class, or images beside a metadata file with a ``file_name`` column."""
    if ref.split and (path / ref.split).is_dir():
        path = path / ref.split
    label = f"{task}: {path}"
    for name in METADATA:
        if (path / name).exists():
            rows = [{"image": row.get("file_name"), **row} for row in read_rows(path / name, task)]
            columns = list(dict.fromkeys(key for row in rows for key in row))
            return RowsSource(rows[: ref.rows], columns, {}, label, path)
    rows = [
        {"image": file.relative_to(path).as_posix(), "label": file.parent.name.replace("_", " ")}
        for file in image_files(path)
        if file.parent != path
    ]
    if not rows:
        raise HarnessHeadsError(
            f"{label}: no table and no images in class folders are here; lay it out as CLASS/picture.jpg, or give "
            "parquet files, a saved data set, JSON or CSV"
        )
    # never cut by ref.rows: files stand class by class, the first rows would be the first classes
    return RowsSource(rows, ("image", "label"), {}, label, path)


def _short(error: BaseException) -> str:
    """First line of an error, at most 160 characters."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:160]
