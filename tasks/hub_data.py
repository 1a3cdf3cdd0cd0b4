"""Data from the hub, at one commit, restricted to the files and rows of a task; never a script, never all splits."""

from __future__ import annotations

from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from loguru import logger

from harness_heads.errors import HarnessHeadsError
from harness_heads.tasks.local_data import table_source
from harness_heads.tasks.sources import RowsSource, Source
from harness_heads.tasks.spec import DataRef

_BUILDERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}


def open_hub(ref: DataRef, task: str) -> Source:
    """Open the task's rows on the hub.

    Raises:
        HarnessHeadsError: one line: what is missing, why, and how to point at a local copy.
    """
    from harness_heads.tasks.data import how_to

    if ref.get:
        raise HarnessHeadsError(
            f"{task}: data set {ref.path} is not on the hub as a whole: get {ref.get}; then {how_to(task, ref.path)}"
        )
    if not ref.files:
        raise HarnessHeadsError(f"{task}: data.files is missing: which files of {ref.path} hold the split?")
    try:
        return _open(ref, task)
    except HarnessHeadsError:
        raise
    except Exception as error:  # whatever network, hub and parquet reader raise, the user's way out is the same
        raise HarnessHeadsError(
            f"{task}: data set {ref.label} cannot be read from the hub ({_reason(error)}); {how_to(task, ref.path)}"
        ) from error


def _open(ref: DataRef, task: str) -> Source:
    import datasets

    datasets.disable_progress_bars()
    commit = ref.revision or _newest(ref, task)
    files = [f"hf://datasets/{ref.path}@{commit}/{pattern}" for pattern in ref.files]
    builder = _BUILDERS[PurePosixPath(ref.files[0]).suffix]
    label = f"{task}: {ref.label}"
    if ref.rows is None:
        return table_source(datasets.load_dataset(builder, data_files={"rows": files}, split="rows"), ref, label)
    stream = datasets.load_dataset(builder, data_files={"rows": files}, split="rows", streaming=True)
    features = stream.features or {}
    for name, feature in features.items():
        if isinstance(feature, datasets.Image):
            stream = stream.cast_column(name, datasets.Image(decode=False))
    names = {name: f.names for name, f in features.items() if isinstance(f, datasets.ClassLabel)}
    rows: list[dict[str, Any]] = list(islice(stream, ref.rows))
    columns = list(features) or list(rows[0])
    return RowsSource(rows, columns, names, label)


def _newest(ref: DataRef, task: str) -> str:
    """The newest commit of a data set whose YAML pins none; said aloud, because items depend on it."""
    from huggingface_hub import HfApi

    commit = str(HfApi().dataset_info(ref.path).sha)
    logger.warning(
        f"{task}: {ref.path} is not pinned; reading commit {commit} (write it as data.revision to fix items)"
    )
    return commit


def _reason(error: BaseException) -> str:
    """Why, in a few words."""
    seen: BaseException | None = error
    kinds: list[str] = []
    while seen is not None and len(kinds) < 8:
        kinds.append(type(seen).__name__)
        seen = seen.__cause__ or seen.__context__
    if "GatedRepoError" in kinds or "403" in str(error):
        return "its terms must be accepted on its page, and HF_TOKEN set"
    text = str(error).strip().splitlines()
    return f"{kinds[0]}: {text[0] if text else 'no message'}"[:160]
