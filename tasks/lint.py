"""Strict reading of a task YAML, before lmms-eval's lenient one ever sees it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.plain import shown
from harness_heads.tasks.spec import HOST_KEYS
from harness_heads.tasks.spec_problems import spec_problems

MAX_LINES = 25
GROUP_KEYS = ("group", "task", "group_alias", "aggregate_metric_list", "metadata", "tag")


@dataclass(frozen=True)
class Linted:
    """What reading a file gave.

    Attributes:
        path: the file.
        problems: everything wrong with it, one line each; empty when sound.
        config: its mapping, ``None`` where it could not be read.
        is_group: whether it lists tasks instead of being one.
    """

    path: Path
    problems: tuple[str, ...]
    config: Mapping[str, Any] | None
    is_group: bool = False


class _Strict(yaml.SafeLoader):
    """A loader that refuses duplicate keys and resolves ``!function``; subclassed per file."""

    problems: list[str]


def read_yaml(path: Path) -> Linted:
    """Read one YAML; everything that is wrong with it comes back, nothing is raised for it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Linted(path, (f"cannot be read: {error}",), None)
    problems: list[str] = []
    loader: Any = type("Loader", (_Strict,), {"problems": problems})
    loader.add_constructor("!function", _function(path, problems))
    loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
    try:
        config = yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        return Linted(path, (_position(error, text),), None)
    except (ValueError, RecursionError) as error:  # a date that is none; brackets without end
        return Linted(path, (f"is no YAML: {error}",), None)
    if not isinstance(config, Mapping):
        kind = "empty" if config is None else f"a {type(config).__name__}"
        return Linted(path, (f"is {kind}; a task is a mapping of keys (lmms-eval would fail on every task)",), None)
    lines = len(text.rstrip().splitlines())
    if lines > MAX_LINES:
        problems.append(f"{lines} lines; a task fits in {MAX_LINES}")
    if "group" in config:
        problems += [f"unknown key {k!r}{did_you_mean(str(k), GROUP_KEYS)}" for k in config if k not in GROUP_KEYS]
        members = config.get("task")
        if not isinstance(members, list) or not all(isinstance(name, str) for name in members):
            problems.append("a group lists the names of its tasks under 'task'")
        if not isinstance(config["group"], str):
            problems.append(f"group: {shown(config['group'])} is no name; write it in quotes")
        return Linted(path, tuple(problems), config, True)
    if "class" not in config:
        problems.append("key 'class' is missing: write class: !function harness_heads.tasks.task.HeadTask")
    problems += spec_problems(config)
    return Linted(path, tuple(problems), config)


def unknown_members(groups: list[Linted], known: set[str]) -> list[str]:
    """Tasks that groups name and nobody defines."""
    return [
        f"{linted.path}: unknown task {name!r}{did_you_mean(str(name), known)}"
        for linted in groups
        for name in (linted.config or {}).get("task") or ()
        if isinstance(name, str) and name not in known
    ]


def doubles(sound: Sequence[Linted]) -> list[str]:
    """Tasks and groups that two files define: lmms-eval would take the one that it reads last, without a word."""
    first: dict[str, Path] = {}
    problems = []
    for linted in sound:
        name = str((linted.config or {}).get("group" if linted.is_group else "task"))
        if name in first:
            problems.append(f"{linted.path}: {name!r} is the name of {first[name]} too; rename one")
        first.setdefault(name, linted.path)
    return problems


def _mapping(loader: _Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        key, line = loader.construct_object(key_node), key_node.start_mark.line + 1
        if not isinstance(key, Hashable):
            continue  # refused below, with its line
        if key in seen:
            loader.problems.append(f"line {line}: key {key!r} is written twice (first on line {seen[key]})")
        seen.setdefault(key, line)
    return loader.construct_mapping(node, deep=True)


def _function(path: Path, problems: list[str]) -> Any:
    """Resolve ``!function module.name`` as lmms-eval does: a file beside the YAML, else an importable module."""

    def construct(loader: _Strict, node: yaml.ScalarNode) -> Any:
        target = str(loader.construct_scalar(node))
        module_name, _, name = target.rpartition(".")
        beside = path.parent / f"{module_name}.py"
        try:
            if beside.exists():
                spec = importlib.util.spec_from_file_location(module_name, beside)
                if spec is None or spec.loader is None:
                    raise ImportError(f"{beside} cannot be loaded")
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            else:
                module = importlib.import_module(module_name)
            return getattr(module, name)
        except Exception as error:  # importing a user's module may raise anything
            problems.append(f"!function {target} cannot be imported ({type(error).__name__}: {error})")
            return target

    return construct


def _position(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    if mark is None:
        return f"is no YAML: {what}"
    line = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or "\\t" in what:
        return f"line {mark.line + 1}: indented with a tab; YAML takes spaces only"
    return f"line {mark.line + 1}: {what}"


def lint(path: Path) -> tuple[Linted, Any]:
    """Read a task YAML and build it from its data: ``(what reading gave, the task or None)``."""
    linted = read_yaml(path)
    if linted.problems or linted.is_group or linted.config is None:
        return linted, None
    from harness_heads.tasks.task import HeadTask

    if linted.config["class"] is not HeadTask:
        return Linted(path, ("class is not harness_heads.tasks.task.HeadTask",), linted.config), None
    try:
        return linted, HeadTask(config=dict(linted.config))
    except HarnessHeadsError as error:
        return Linted(path, (str(error),), linted.config), None
    except Exception as error:  # lmms-eval asserts what it likes about keys that are its own
        told = f"lmms-eval refuses it ({type(error).__name__}: {error}); see its keys {', '.join(HOST_KEYS[1:])}"
        return Linted(path, (" ".join(told.split()),), linted.config), None
