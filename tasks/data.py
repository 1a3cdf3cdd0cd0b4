"""The one function that opens data for all tasks.

Order: a local copy named for the task (``--data TASK=PATH``), a local copy of the data set under the folder
``HARNESS_HEADS_DATA`` (as ``<owner>/<name>``), what ships with the package, and last the hub at the task's pinned
revision, restricted to the files and rows that the task needs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from harness_heads.errors import HarnessHeadsError
from harness_heads.tasks.sources import DigitsSource, Source
from harness_heads.tasks.spec import DataRef

DATA_VARIABLE = "HARNESS_HEADS_TASK_DATA"
"""Environment variable: JSON object task -> path; the launcher writes it from ``--data TASK=PATH``."""
DATA_ROOT = "HARNESS_HEADS_DATA"
"""Environment variable: folder of local copies, laid out as ``<owner>/<name>``."""
BUILT_IN = "harness-heads/digits"


def open_data(ref: DataRef, task: str) -> Source:
    """Open the rows of a task.

    Args:
        ref: what the task's YAML says about its data.
        task: name of the task, for ``--data`` and for messages.

    Raises:
        HarnessHeadsError: one line that names what is missing and how to point at a local copy.
    """
    local = local_copy(ref, task)
    if local is not None:
        from harness_heads.tasks.local_data import open_local

        return open_local(local, ref, task)
    if ref.path == BUILT_IN:
        return DigitsSource(ref.split or "evaluate")
    from harness_heads.tasks.hub_data import open_hub

    return open_hub(ref, task)


def local_copy(ref: DataRef, task: str) -> Path | None:
    """The local copy that the user named, or that lies under ``HARNESS_HEADS_DATA``; ``None`` without either."""
    try:
        named = json.loads(os.environ.get(DATA_VARIABLE, "{}"))
    except json.JSONDecodeError as error:
        raise HarnessHeadsError(f"{DATA_VARIABLE} is not a JSON object of task names and paths: {error}") from error
    if not isinstance(named, dict) or not all(isinstance(path, str) for path in named.values()):
        raise HarnessHeadsError(f"{DATA_VARIABLE} is not a JSON object of task names and paths: write {{task: path}}")
    if task in named:
        path = Path(named[task]).expanduser()
        if not path.exists():
            raise HarnessHeadsError(f"{task}: --data {task}={path} does not exist")
        return path
    root = os.environ.get(DATA_ROOT)
    if root and (Path(root).expanduser() / ref.path).exists():
        return Path(root).expanduser() / ref.path
    here = "/" not in ref.path and Path(ref.path).exists()  # one word is no owner/name of the hub
    if here or Path(ref.path).is_absolute() or ref.path.startswith("."):
        if not Path(ref.path).exists():
            raise HarnessHeadsError(f"{task}: data.path {ref.path} does not exist; {how_to(task)}")
        return Path(ref.path)
    return None


def how_to(task: str, path: str = "<owner>/<name>") -> str:
    """The half sentence that tells a user how to point at a local copy."""
    return f"point at a local copy with --data {task}=PATH, or set {DATA_ROOT}=DIR with the copy in DIR/{path}"
