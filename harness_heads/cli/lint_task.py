"""``harness-heads lint-task``: check task YAMLs strictly and draw their first items."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from harness_heads.errors import HarnessHeadsError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "lint-task",
        help="check task YAMLs strictly: keys, recipe, data, columns; draw a contact sheet of the first items",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML file, or a folder of them")
    parser.add_argument("--data", action="append", default=[], metavar="TASK=PATH", help="local copy of a task's data")
    parser.add_argument("--no-data", action="store_true", help="read the YAML only; open no data")
    parser.add_argument("--items", type=int, default=6, metavar="N", help="items on a contact sheet (default 6)")
    parser.add_argument("-o", "--output", default=".", metavar="DIR", help="folder for TASK.png (default: here)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Lint every file; status 1 if one has a problem."""
    from harness_heads.tasks.contact_sheet import contact_sheet
    from harness_heads.tasks.data import DATA_VARIABLE
    from harness_heads.tasks.lint import Linted, doubles, lint, read_yaml, unknown_members

    if arguments.items < 1:
        raise HarnessHeadsError(f"--items {arguments.items}: a contact sheet shows 1 item or more")
    named: dict[str, str] = {}
    for entry in arguments.data:
        task_name, path = _pair(entry)
        if task_name in named:
            raise HarnessHeadsError(f"--data {entry}: {task_name} is given twice; a task reads one copy, name it once")
        named[task_name] = path
    if named:
        os.environ[DATA_VARIABLE] = json.dumps(named)
    files = [file for name in arguments.files for file in _files(Path(name))]
    sound: list[Linted] = []
    groups: list[Linted] = []
    known: set[str] = set()
    failed = 0
    for file in files:
        linted, task = (read_yaml(file), None) if arguments.no_data else lint(file)
        for problem in linted.problems:
            print(f"{file}: {problem}")
        failed += bool(linted.problems)
        sound += [] if linted.problems else [linted]
        if linted.is_group:
            groups.append(linted)
        elif linted.config is not None:
            known.add(str(linted.config.get("task")))
        if task is not None:
            target = Path(arguments.output) / f"{task.spec.task}.png"
            try:
                sheet = contact_sheet(task, arguments.items)
            except HarnessHeadsError as error:  # a picture that is no picture shows when it is drawn
                print(f"{file}: {error}")
                failed += 1
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            sheet.save(target)
            print(f"{file}: sound, {task.spec.n} items; contact sheet {target}")
        elif not linted.problems:
            print(f"{file}: sound")
    # a group alone on the command line may name tasks of other folders
    missing = unknown_members(groups, known) if len(files) > len(groups) else []
    missing += doubles(sound)
    for problem in missing:
        print(problem)
    return 1 if failed or missing else 0


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path.rglob("*.yaml"))
        if not found:
            raise HarnessHeadsError(f"{path} holds no .yaml file")
        return found
    if not path.exists():
        raise HarnessHeadsError(f"{path} does not exist")
    return [path]


def _pair(entry: str) -> tuple[str, str]:
    task, equals, path = entry.partition("=")
    if not equals or not task or not Path(path).exists():
        raise HarnessHeadsError(f"--data {entry}: write TASK=PATH with a path that exists")
    return task, str(Path(path).resolve())
