"""Whether a plan can be run: its sets, tasks, model and families exist and fit each other.

What is wrong with a plan as a file, :mod:`harness_heads.protocol.plan` says; here it meets what is installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from harness_heads import head_sets
from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.protocol.formats import counted
from harness_heads.protocol.pitfalls_plan import model_name
from harness_heads.protocol.plan import Plan, load_plan
from harness_heads.settings import CONTROL_FAMILIES, DEFAULT_MODEL, split_model_args
from harness_heads.tasks.catalogue import catalogue, operation

KINDS = {"mask": "necessity", "ablate": "necessity", "steer": "steerability"}
"""What a task's operation can show; a task of lmms-eval's own, answered under every set by turns, shows necessity."""


def add_include_path(parser: argparse.ArgumentParser) -> None:
    """Register ``--include-path``."""
    parser.add_argument(
        "--include-path",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="folder of task YAMLs of your own",
    )


def check_plan(plan: Plan, include: Sequence[Path] = ()) -> None:
    """Hold a plan to what is installed.

    Args:
        include: folders of the user's own task YAMLs.

    Raises:
        HarnessHeadsError: everything that is wrong, each with its fix.
    """
    problems = [*_sets(plan), *_tasks(plan, include), *_families(plan), *_settings(plan)]
    if problems:
        raise HarnessHeadsError("plan: " + "; ".join(dict.fromkeys(problems)))


def check_target(path: Path, plan: Plan) -> None:
    """A plan may be written twice, but never over another one: runs may have been started with that.

    Raises:
        HarnessHeadsError: the file is there and holds something else.
    """
    if path.is_dir():
        raise HarnessHeadsError(f"{path} is a folder; name a file with -o")
    if not path.exists():
        return
    try:
        before = load_plan(path).digest
    except HarnessHeadsError as error:
        raise HarnessHeadsError(f"{path} exists and is no plan; name another file with -o") from error
    if before != plan.digest:
        raise HarnessHeadsError(
            f"{path} holds another plan ({before[:12]}), with which runs may have been started; name another file with "
            "-o, or delete it first"
        )


def _sets(plan: Plan) -> Iterator[str]:
    model = str(plan.settings.get("pretrained", DEFAULT_MODEL))
    for name in dict.fromkeys([*plan.sets, *(n for c in plan.claims for n in (c.set, c.versus) if n)]):
        try:
            heads = head_sets.resolve(name)
        except HarnessHeadsError as error:
            # a claim may call a set by the end of its name
            if not any(known.split("/")[-1] == name for known in plan.sets):
                yield str(error)
            continue
        if plan.k is not None and plan.k > len(heads):
            held = counted(len(heads), "head")
            yield f"set {name!r} holds {held}, k={plan.k} cannot be cut; give k={len(heads)} or less"
        made_for = heads.model.id
        if model_name(made_for) != model_name(model) and not heads.provenance.get("transfer"):
            yield f"set {name!r} was made for {made_for}, the plan's model is {model}; give --pretrained {made_for}"


def _tasks(plan: Plan, include: Sequence[Path]) -> Iterator[str]:
    from harness_heads.cli.run_arguments import check_include_path  # loads torch, which no --help should wait for

    for folder in include:
        check_include_path(folder)
    folders = tuple(include)
    for task in dict.fromkeys([*plan.tasks, *(c.task for c in plan.claims)]):
        if task not in catalogue(folders) and task not in _installed(folders):
            near = did_you_mean(task, catalogue(folders))
            yield f"no task is called {task!r}{near} (`lmms_eval --tasks list` prints all)"
    for claim in plan.claims:
        op = operation(claim.task, folders)
        shows = "necessity" if op is None else KINDS[op]
        if claim.kind in KINDS.values() and claim.kind != shows:
            how = "it is lmms-eval's own" if op is None else f"it asks to {op}"
            yield (
                f"a {claim.kind} claim cannot be made on {claim.task}: {how}, which shows {shows}; name a task that "
                f"shows {claim.kind}, such as {_nearest(claim.task, claim.kind)}"
            )
        if claim.kind == "difference" and claim.set == claim.versus:
            yield f"the difference on {claim.task} is of {claim.set} and itself; name another set"


def _nearest(task: str, kind: str) -> str:
    """The task of ours that shows ``kind`` and whose name is nearest: the same corpus under the other operation."""
    able = [name for name in sorted(catalogue()) if KINDS[operation(name) or "mask"] == kind]
    return max(able, key=lambda name: SequenceMatcher(None, name, task).ratio())


@cache
def _installed(include: tuple[Path, ...]) -> frozenset[str]:
    """Names of lmms-eval's tasks and groups; read only where a name is none of ours, for it takes seconds."""
    from lmms_eval.tasks import TaskManager
    from loguru import logger

    logger.disable("lmms_eval")  # it tells of every template that is no task
    try:
        return frozenset(TaskManager("ERROR", include_path=[str(folder) for folder in include] or None).all_tasks)
    finally:
        logger.enable("lmms_eval")


def _families(plan: Plan) -> Iterator[str]:
    for family in plan.families:
        if family not in CONTROL_FAMILIES:
            near = did_you_mean(family, CONTROL_FAMILIES)
            yield f"unknown control family {family!r}{near} (known: {', '.join(CONTROL_FAMILIES)})"
    for claim in plan.claims:
        about = f"the claim about {claim.set} is held against"
        if claim.family not in plan.families:
            yield f"{about} family {claim.family!r}, which the plan does not draw; add it to families"
        elif claim.family == "damage":
            yield f"{about} damage sets, which are no null; name a family such as layer first"


def _settings(plan: Plan) -> Iterator[str]:
    ours = split_model_args({}, ())[0].to_dict()
    try:
        split_model_args({name: value for name, value in plan.settings.items() if name in ours}, ())
    except HarnessHeadsError as error:
        yield str(error)
