"""Arguments of a run: lmms-eval's own parser, our two additions, and the defaults that make results traceable."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import yaml

from harness_heads import head_sets
from harness_heads.errors import HarnessHeadsError
from harness_heads.models.hosts import PREFIXES
from harness_heads.models.run_info import RUN_FOLDER_VARIABLE, read_run_file
from harness_heads.settings import UNTOUCHED
from harness_heads.tasks.data import DATA_VARIABLE

RUNS = Path("reports") / "runs"
TASKS = Path(head_sets.__file__).resolve().parents[1] / "tasks"


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """lmms-eval's namespace and our ``--data TASK=PATH`` values, which its parser does not know."""
    from lmms_eval.__main__ import parse_eval_args

    ours = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    ours.add_argument("--data", action="append", default=[], metavar="TASK=PATH")
    mine, rest = ours.parse_known_args(list(argv))
    before = sys.argv
    sys.argv = ["lmms_eval", *rest]
    try:
        _, namespace = parse_eval_args()
    finally:
        sys.argv = before
    return namespace, mine.data


def prepare(namespace: argparse.Namespace, data: Sequence[str]) -> Path:
    """Fill in what a run needs and return the run folder.

    Tasks of this package become findable, samples are logged, results go to ``reports/runs/<date>-<tasks>/`` unless
    ``--output_path`` says otherwise, ``head_set=x`` becomes ``head_set=x@digest`` (lmms-eval's response cache keys on
    the argument string, not on the content of the file), and local data are made known to the tasks.
    """
    if namespace.limit is not None and namespace.limit != -1 and namespace.limit <= 0:
        raise HarnessHeadsError(f"--limit {namespace.limit:g} leaves no item; give 1 or more, or leave it out")
    if not (namespace.tasks or "").strip(" ,"):
        raise HarnessHeadsError("--tasks names no task; `lmms_eval --tasks list` prints all")
    user = [namespace.include_path] if isinstance(namespace.include_path, str) else list(namespace.include_path or [])
    for path in user:
        check_include_path(Path(path))
    namespace.include_path = [str(TASKS), *user]
    if namespace.output_path is None:
        stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
        namespace.output_path = str(RUNS / f"{stamp}-{(namespace.tasks or 'none').replace(',', '+')[:60]}")
    namespace.log_samples = True
    if namespace.model.split("_")[0] in PREFIXES:
        check_model_args(namespace.model_args or "")
        namespace.model_args = pinned(namespace.model_args or "")
    folder = Path(namespace.output_path)
    read_run_file(folder)  # one that is broken is an error before anything is loaded
    os.environ[RUN_FOLDER_VARIABLE] = str(folder)
    os.environ.update(_data_environment(data))
    return folder


def check_include_path(folder: Path) -> None:
    """Refuse a folder on which lmms-eval would fail for every task: it reads all YAML files below as mappings.

    Raises:
        HarnessHeadsError: naming the folder that is none, or the file that is no mapping.
    """
    if not folder.is_dir():
        raise HarnessHeadsError(f"--include_path {folder}: no such folder; name the one that holds the task's YAML")
    for file in sorted(folder.rglob("*.yaml")):
        try:
            root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
            fault = None if isinstance(root, yaml.MappingNode) else "it is no mapping of keys"
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            fault = str(getattr(error, "problem", None) or error).splitlines()[0]
        if fault:
            raise HarnessHeadsError(
                f"--include_path {folder}: {file} is no task ({fault}), and lmms-eval reads every .yaml below that "
                "folder; mend it, or keep your tasks in a folder of their own"
            )


def check_model_args(model_args: str) -> None:
    """Refuse what lmms-eval's parser falls over, or takes without a word.

    Raises:
        HarnessHeadsError: listing every argument without a name or a value, and every name that is given twice.
    """
    from lmms_eval.utils import _smart_comma_split

    problems: list[str] = []
    seen: set[str] = set()
    for part in _smart_comma_split(model_args) if model_args.strip() else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name:
            problems.append(f"{part!r} names no argument; write name=value between commas")
        elif not equals:
            problems.append(f"{name!r} has no value; write {name}=VALUE, and join lists with + (a comma ends a value)")
        elif not value:
            problems.append(f"{name}= is empty; give it a value, or leave it out")
        elif name in seen:
            problems.append(f"{name} is given twice; join several values with +, as {name}=A+B")
        seen.add(name)
    if problems:
        raise HarnessHeadsError("model_args: " + "; ".join(problems))


def pinned(model_args: str) -> str:
    """``model_args`` with every head set followed by ``@`` and the first 12 digits of its identity."""
    parts = model_args.split(",") if model_args else []
    for index, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if equals and name.strip() == "head_set":
            parts[index] = "head_set=" + "+".join(_pin(spec) for spec in value.split("+"))
    return ",".join(parts)


def _pin(spec: str) -> str:
    spec = spec.strip()
    if spec == UNTOUCHED:
        return spec
    digest = head_sets.resolve(spec).identity[:12]
    return spec if "@" in spec else f"{spec}@{digest}"


def _data_environment(data: Sequence[str]) -> dict[str, str]:
    values = {}
    for entry in data:
        task, equals, path = entry.partition("=")
        if not equals or not task or not path:
            raise HarnessHeadsError(f"--data {entry}: write TASK=PATH, for example --data ncs_imagenet=/data/imagenet")
        if not Path(path).exists():
            raise HarnessHeadsError(f"--data {entry}: {path} does not exist")
        if task in values:
            raise HarnessHeadsError(f"--data {entry}: {task} is given twice; a task reads one copy, name it once")
        values[task] = str(Path(path).resolve())
    if not values:
        return {}
    import json

    return {DATA_VARIABLE: json.dumps(values)}
