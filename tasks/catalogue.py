"""Which tasks this package ships and which operation each asks for, read from the YAMLs without building anything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from harness_heads.conditions import Op
from harness_heads.tasks.spec import DEFAULT_OP

FOLDER = Path(__file__).resolve().parent


class _Loader(yaml.SafeLoader):
    """Reads ``!function`` tags as plain text: a catalogue imports nothing."""


def _as_text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Loader.add_constructor("!function", _as_text)


def read_yaml(path: Path) -> dict[str, Any]:
    """A task or group file as plain values, ``!function`` tags as text."""
    config: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    return config


@cache
def catalogue(folders: tuple[Path, ...] = ()) -> Mapping[str, Mapping[str, Any]]:
    """Task name -> the YAML's mapping, for every task of this package (groups are left out).

    Args:
        folders: of task YAMLs of the user's own; those that are made with a recipe of ours are tasks of ours.
    """
    found = {}
    for folder in (FOLDER, *folders):
        for path in sorted(folder.rglob("*.yaml")):
            config = _whole(path)
            if "recipe" in config and "task" in config:
                found[config["task"]] = config
    return found


def _whole(path: Path) -> dict[str, Any]:
    """A file's mapping over those that it includes, as lmms-eval reads it."""
    config = read_yaml(path)
    named = config.get("include") or []
    for name in [named] if isinstance(named, str) else named:
        if (path.parent / name).is_file():
            config = {**_whole(path.parent / name), **config}
    return config


def operation(task: str, folders: tuple[Path, ...] = ()) -> Op | None:
    """What a task of ours does to heads; ``None`` for a task that is not ours.

    A group (``pointing``) is not a task: name its members, or run it with ``lmms_eval``.
    """
    config = catalogue(folders).get(task)
    if config is None:
        return None
    op: Op = config.get("probe", {}).get("op") or DEFAULT_OP.get(config["recipe"], "mask")
    return op
