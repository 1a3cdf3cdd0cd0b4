"""Stock tasks under a set and under each of its controls: one lmms-eval run per head set, read as one task.

``harness-heads run`` writes such a fan: a folder per set with its ``head_set.json`` and lmms-eval's own samples, whose
items carry a score of the task and nothing of ours. What no such file can say lies beside the folders in ``fan.json``,
written before the first run: the plan's digest and which runs there are to be. The fan is whole or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import HeadSet, SetEntry, SetTable, empty_set, load_head_set
from harness_heads.protocol.evidence import Block, TaskEvidence
from harness_heads.protocol.malformed import check_fields, json_object, readable
from harness_heads.protocol.plan import Plan, plan_from_dict
from harness_heads.protocol.runs import RunInfo

RECIPE, ARM, CONDITION = "fan", "answers", "fan"
HEAD_SET, FAN = "head_set.json", "fan.json"
UNTOUCHED = "untouched"
"""Label of the run under the empty set: the host's own score."""
SCHEMA = 1
_SAMPLES = re.compile(r"_?samples_(?P<task>.+)\.jsonl$")
_NOT_SCORES = ("doc_id", "idx", "doc_hash", "prompt_hash", "target_hash")
_SCORE_NAMES = ("score", "correct", "exact_match", "accuracy", "acc")


@dataclass(frozen=True)
class Member:
    """One run of a fan: the set it was run under, and whether it is the set itself, a control or the empty set."""

    label: str
    heads: HeadSet
    folder: Path


def write_fan_file(folder: Path, labels: Sequence[str], tasks: Sequence[str], plan: Plan, spec: str = "") -> None:
    """Declare a fan before its first run.

    Args:
        folder: the parent of its run folders.  labels: their names.  tasks: what each is to answer.
        spec: what the plan calls the set.
    """
    value = {"schema": SCHEMA, "labels": list(labels), "tasks": list(tasks), "plan": plan.to_dict(), "set": spec}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FAN).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def declared_plans(folders: Sequence[Path]) -> list[Plan]:
    """Plans that the fans of these run folders were started with."""
    found = {folder.parent: _declared(folder.parent) for folder in folders}
    return [value[1] for value in found.values() if value is not None]


def _declared(folder: Path) -> tuple[Mapping[str, Any], Plan] | None:
    """What ``fan.json`` says; ``None`` for a fan made by hand."""
    path = folder / FAN
    if not path.is_file():
        return None
    value = json_object(path)
    if value.get("schema") != SCHEMA:
        raise HarnessHeadsError(f"{path}: schema {value.get('schema')!r} is unknown, this version reads {SCHEMA}")
    check_fields(value, {"labels": (list,), "tasks": (list,)}, str(path))
    return value, plan_from_dict(value.get("plan"), str(path))


def is_member(path: Path) -> bool:
    """Whether a folder is one run of a fan."""
    return (
        (path / HEAD_SET).is_file()
        and not (path / "scores.safetensors").is_file()
        and not (path / "run.json").is_file()
    )


def read_fan(folders: Sequence[Path]) -> list[tuple[RunInfo, TaskEvidence]]:
    """Fans of all parents among ``folders``, one task evidence per parent and task.

    A fan made by hand may lack the untouched host: what its sets cost is then counted from a perfect score.

    Raises:
        HarnessHeadsError: a run, a task or an item that some of the sets have and others lack.
    """
    by_parent: dict[str, list[Member]] = {}
    for folder in folders:
        member = Member(folder.name, load_head_set(folder / HEAD_SET), folder)
        by_parent.setdefault(str(folder.parent), []).append(member)
    out = []
    for members in by_parent.values():
        parent = next((m for m in members if m.label == "set"), None)
        if parent is None:
            raise HarnessHeadsError(f"fan {members[0].folder.parent.name}: the run under the set itself is missing")
        declared = _declared(parent.folder.parent)
        wanted = {p.name for p in parent.folder.parent.iterdir() if (p / HEAD_SET).is_file()}
        wanted |= set() if declared is None else set(declared[0]["labels"])
        missing = sorted(wanted - {m.label for m in members if _files(m.folder)})
        if missing:
            raise HarnessHeadsError(
                f"fan of {parent.heads.name!r}: the run under {missing[0]} has no samples ({len(missing)} missing); "
                "give the same command again to go on"
            )
        lost = sorted(set() if declared is None else set(declared[0]["tasks"]) - set(_files(parent.folder)))
        if lost:
            raise HarnessHeadsError(f"fan of {parent.heads.name!r}: no run answered task {lost[0]}, which it declares")
        out += _tasks(parent, members, declared)
    return out


def _tasks(
    parent: Member, members: Sequence[Member], declared: tuple[Mapping[str, Any], Plan] | None
) -> list[tuple[RunInfo, TaskEvidence]]:
    entries = [SetEntry("empty", empty_set(parent.heads.model, parent.heads.geometry))]
    keyed: list[tuple[str, Member]] = []
    for member in sorted(members, key=lambda m: (m.label != "set", *_family(m.label))):
        if member.label == UNTOUCHED:
            keyed.append((entries[0].key, member))
            continue
        if member.label == "set":
            entry = SetEntry("discovered", member.heads)
        else:
            family, draw = _family(member.label)
            entry = SetEntry("control", member.heads, family, parent.heads.key, draw)
        entries.append(entry)
        keyed.append((entry.key, member))
    table = SetTable(tuple(entries))
    plan, spec = (None, "") if declared is None else (declared[1].digest, str(declared[0].get("set") or ""))
    run = RunInfo(_run_value(parent.heads, table, plan, spec), table, {parent.heads.key: parent.heads}, ())
    names = [set(_files(m.folder)) for _, m in keyed]
    if any(n != names[0] for n in names):
        raise HarnessHeadsError(f"fan of {parent.heads.name!r}: not every set was run on the same tasks")
    return [(run, _task(task, keyed)) for task in sorted(names[0])]


def _task(task: str, keyed: Sequence[tuple[str, Member]]) -> TaskEvidence:
    scores = [(key, _scores(_files(member.folder)[task], task, member.label)) for key, member in keyed]
    items = sorted(scores[0][1])
    for (_, member), (_, found) in zip(keyed, scores, strict=True):
        if sorted(found) != items:
            raise HarnessHeadsError(f"fan, task {task}: the run under {member.label} has other items than the set's")
    values = np.array([[found[item] for _, found in scores] for item in items], np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(values)[:, :, None]
    blank = np.full(values.shape, np.nan)
    block = Block(tuple(key for key, _ in scores), logs, blank, blank.copy())
    n = len(items)
    planned = _original(_files(keyed[0][1].folder)[task], task, n)
    return TaskEvidence(
        run=-1,
        task=task,
        recipe=RECIPE,
        recipe_version=1,
        seed=0,
        n_planned=planned,
        letters=("score",),
        items=tuple(items),
        index=tuple(range(n)),
        clusters=tuple(items),
        options=(("score",),) * n,
        correct={"": np.zeros(n, np.int64)},
        distractor=np.full(n, -1, np.int64),
        blocks={(ARM, CONDITION): block},
        plain={},
        details=({},) * n,
        numerics={"dtype": [], "kernel": [], "baseline_gap": None},
    )


def _original(file: Path, task: str, n: int) -> int:
    """How many items a stock task has, from lmms-eval's results beside the samples; ``n`` where they do not say."""
    results = file.with_name(_SAMPLES.sub("_results.json", file.name).removeprefix("_"))
    counts = json_object(results).get("n-samples") if results.is_file() else None
    with readable(f"{results}: the number of samples of {task}"):
        return int(counts[task]["original"]) if counts and task in counts else n


def _scores(file: Path, task: str, label: str) -> dict[str, float]:
    """Score of every item; items are named by their number and target, which all runs of a fan share."""
    out: dict[str, float] = {}
    with file.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            with readable(f"fan, task {task}, {label}: line {number}"):
                value = json.loads(line)
                score, doc = _score(value), int(value["doc_id"])
            if score is None or not 0 <= score <= 1:
                raise HarnessHeadsError(
                    f"fan, task {task}, {label}: line {number} has no score in [0, 1]; only such tasks can be compared"
                )
            out[f"{doc:06d}"] = score
    return out


def _score(value: Mapping[str, Any]) -> float | None:
    """The task's score of an item: its first plain number, or the score inside its first payload."""
    for name, content in value.items():
        if name in _NOT_SCORES:
            continue
        if isinstance(content, bool | int | float):
            return float(content)
        if isinstance(content, Mapping):
            for inner in _SCORE_NAMES:
                if isinstance(content.get(inner), bool | int | float):
                    return float(content[inner])
    return None


def _files(folder: Path) -> dict[str, Path]:
    """Latest samples file of every task below a folder."""
    out: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.jsonl"), key=lambda p: p.name):
        match = _SAMPLES.search(path.name)
        if match:
            out[match["task"]] = path
    return out


def _family(label: str) -> tuple[str, int]:
    family, _, draw = label.rpartition("-")
    return (family, int(draw)) if draw.isdigit() else (label, 0)


def _run_value(heads: HeadSet, table: SetTable, plan: str | None, spec: str) -> dict[str, Any]:
    geometry = {"heads": list(heads.geometry.heads), "kv_heads": list(heads.geometry.kv_heads or ())}
    return {
        "schema": 1,
        "fan": True,
        "settings": {"head_set": [f"{spec or heads.name}@{heads.identity[:12]}"]},
        "model": {"id": heads.model.id, "revision": heads.model.revision, "geometry": geometry},
        "sets": table.to_list(),
        "sources": {heads.key: heads.to_dict()},
        "conditions": [],
        "op": RECIPE,
        "plan": plan,
        "seed": None,
    }
