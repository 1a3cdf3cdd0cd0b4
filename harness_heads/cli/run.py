"""``harness-heads run PLAN``: everything that a plan names, in one go, then the report.

Our tasks answer all sets and controls of the plan in one run per operation. Stock tasks generate text under one set at
a time, so each set and each of its controls gets a run of its own beside the untouched host (a *fan*); evidence
refuses a fan with a run missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from harness_heads import controls, head_sets, settings
from harness_heads.cli.plan_checks import add_include_path, check_plan
from harness_heads.conditions import Op
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import HeadSet, empty_set
from harness_heads.models.hosts import PREFIXES, prefix_of
from harness_heads.protocol.fan import HEAD_SET, UNTOUCHED, write_fan_file
from harness_heads.protocol.malformed import json_object
from harness_heads.protocol.plan import Plan, load_plan
from harness_heads.tasks.catalogue import catalogue, operation

OURS = ("host", "op", "limit")
"""Plan settings that are not model_args: the host's short name, the operation on stock tasks, items per task."""


@dataclass(frozen=True)
class Step:
    """One ``lmms_eval`` command.

    Attributes:
        folder: run folder below the plan's output.
        model, model_args: what runs.
        tasks: task names.
        limit: items per task; ``None`` for all.
        heads: the set of a fan's run, which its folder holds as a file.
        spec: what the plan calls the set that a fan is about.
        include: folders of task YAMLs of the user's own.
    """

    folder: str
    model: str
    model_args: Mapping[str, Any]
    tasks: tuple[str, ...]
    limit: int | None = None
    heads: HeadSet | None = None
    spec: str = ""
    include: tuple[Path, ...] = ()

    def command(self, out: Path) -> list[str]:
        """Arguments of ``python -m harness_heads``."""
        arguments = ",".join(f"{name}={value}" for name, value in self.model_args.items())
        words = ["--model", self.model, "--model_args", arguments, "--tasks", ",".join(self.tasks)]
        words += ["--output_path", str(out / self.folder)]
        if self.include:
            words += ["--include_path", *map(str, self.include)]
        return words if self.limit is None else [*words, "--limit", str(self.limit)]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("run", help="run everything that a plan names", description=__doc__)
    parser.add_argument("plan", type=Path, help="plan file (harness-heads plan writes one)")
    parser.add_argument("-o", "--out", "--output", type=Path, required=True, help="folder of all runs and the report")
    add_include_path(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the plan's steps; the first that fails ends it, and the same command goes on from there.

    Raises:
        HarnessHeadsError: a plan that cannot be run, said before anything is; or a step that failed.
    """
    plan = load_plan(arguments.plan)
    check_plan(plan, arguments.include_path)
    include = tuple(arguments.include_path)
    todo = [replace(step, include=include) for step in steps(plan, arguments.plan, arguments.out, include)]
    if arguments.dry_run:
        for step in todo:
            print("lmms_eval " + " ".join(step.command(arguments.out)))
        return 0
    declare_fans(todo, plan, arguments.out)
    for step in tqdm(todo, desc="runs of the plan"):
        if _finished(arguments.out / step.folder, step.tasks):
            continue
        command = [sys.executable, "-m", "harness_heads", *step.command(arguments.out)]
        if subprocess.run(command, check=False).returncode != 0:
            raise HarnessHeadsError(f"run {step.folder} failed; mend it and give the same command to go on")
    from harness_heads.cli.report import report_on

    folders = [arguments.out / step.folder for step in todo]
    print(f"protocol report: {report_on(folders, arguments.out / 'report').html}")
    return 0


def steps(plan: Plan, plan_path: Path, out: Path, include: tuple[Path, ...] = ()) -> Iterator[Step]:
    """The commands of a plan, in order.

    Args:
        include: folders of task YAMLs of the user's own.

    Raises:
        HarnessHeadsError: if the plan names no task or no set.
    """
    if not plan.tasks or not plan.sets:
        raise HarnessHeadsError(f"plan {plan_path}: it must name tasks and sets to be run")
    host = str(plan.settings.get("host", "qwen3vl"))
    base = {name: value for name, value in plan.settings.items() if name not in OURS}
    shared = {**base, "plan": str(plan_path)}
    groups: dict[tuple[Op, int | None], list[str]] = {}
    stock: list[str] = []
    for task in plan.tasks:
        op = operation(task, include)
        if op is None:
            stock.append(task)
        else:
            groups.setdefault((op, items_asked(plan, task, include)), []).append(task)
    for (op, limit), tasks in groups.items():
        model_args = {**_acting(shared, op), "head_set": "+".join(plan.sets), "control_family": "+".join(plan.families)}
        if plan.r is not None:
            model_args["controls"] = plan.r
        if plan.k is not None:
            model_args["top_k"] = plan.k
        alone = sum(other == op for other, _ in groups) == 1
        yield Step(
            op if alone else f"{op}-{limit or 'all'}", f"{prefix_of(op)}_{host}", model_args, tuple(tasks), limit
        )
    if stock:
        yield from _fan(plan, shared, host, tuple(stock), out)


def declare_fans(todo: Sequence[Step], plan: Plan, out: Path) -> None:
    """Write what fans need before their first run: a head-set file a run, and what is to be run."""
    fans: dict[Path, list[Step]] = {}
    for step in todo:
        if step.heads is not None:
            folder = out / step.folder
            step.heads.save(folder / HEAD_SET)
            fans.setdefault(folder.parent, []).append(step)
    for folder, members in fans.items():
        labels = [Path(step.folder).name for step in members]
        write_fan_file(folder, labels, members[0].tasks, plan, members[0].spec)


def _fan(plan: Plan, shared: Mapping[str, Any], host: str, tasks: tuple[str, ...], out: Path) -> Iterator[Step]:
    """Stock tasks: the host untouched, every set, and every control of every set, by head-set files below ``out``."""
    op = str(plan.settings.get("op", "ablate"))
    if op not in PREFIXES.values():
        raise HarnessHeadsError(f"plan: settings.op={op!r} is no operation; write mask, steer or ablate")
    prefix = next(name for name, performed in PREFIXES.items() if performed == op)
    seed = int(plan.settings.get("control_seed", 0))
    single = {
        name: value for name, value in _acting(shared, op).items() if name not in ("control_seed", "control_family")
    }
    for name in plan.sets:
        parent = head_sets.resolve(name)
        parent = parent if plan.k is None else parent.top(plan.k)
        fan: list[tuple[str, HeadSet]] = [(UNTOUCHED, empty_set(parent.model, parent.geometry)), ("set", parent)]
        for family in plan.families:
            drawn = controls.draw_controls(parent, family, plan.r or 0, seed)
            fan += [(f"{family}-{index}", heads) for index, heads in enumerate(drawn)]
        for label, heads in fan:
            folder = f"stock/{parent.key}/{label}"
            named = str(out / folder / HEAD_SET) if len(heads) else settings.UNTOUCHED
            model_args = {**single, "head_set": named, "controls": 0}
            yield Step(folder, f"{prefix}_{host}", model_args, tasks, items_asked(plan), heads, name)


def _acting(model_args: Mapping[str, Any], op: str) -> dict[str, Any]:
    """Those that an operation reads: a plan of masking and steering fixes keep_self for the one, beta for the other."""
    return {name: value for name, value in model_args.items() if settings.ACTS_UNDER.get(name, op) == op}


def items_asked(plan: Plan, task: str = "", include: tuple[Path, ...] = ()) -> int | None:
    """How many items of a task a plan's run answers: ``settings.limit``, else ``n``; ``None`` for all.

    A task with a leak audit answers all its candidates: which of them count is known only afterwards.
    """
    limit = plan.settings.get("limit")
    if limit is not None:
        return int(limit)
    return None if "audited" in (catalogue(include).get(task, {}).get("options") or {}) else plan.n


def _finished(folder: Path, tasks: Sequence[str]) -> bool:
    """Whether a run folder already holds lmms-eval's results for all its tasks."""
    found = set()
    for path in folder.rglob("*_results.json"):
        try:
            found |= set(json_object(path).get("results") or {})
        except HarnessHeadsError:
            continue  # cut off when the run was killed: its tasks are run again
    return set(tasks) <= found
