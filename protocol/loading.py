"""Run folders -> Evidence: finds lmms-eval's files, streams the samples, and checks the runs against each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness_heads.discovery.output import Stored, read
from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import item_record_from_dict
from harness_heads.protocol import checks
from harness_heads.protocol.discoveries import overlaps
from harness_heads.protocol.evidence import Evidence, TaskEvidence
from harness_heads.protocol.fan import declared_plans, read_fan
from harness_heads.protocol.folders import PLAN_FILE, RUN_FILE, SAMPLES, look
from harness_heads.protocol.leaks import audited
from harness_heads.protocol.malformed import json_object, readable
from harness_heads.protocol.plan import Plan, load_plan, plan_from_dict
from harness_heads.protocol.records import TaskReader, check_record
from harness_heads.protocol.runs import RunInfo, canonical, run_info_from_dict


@dataclass
class _Found:
    """What was read from one run folder."""

    tasks: list[tuple[RunInfo | None, TaskEvidence]] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_all(paths: Sequence[Path], plan: Path | None = None) -> Evidence:
    """See :func:`harness_heads.protocol.evidence.load_evidence`."""
    if not paths:
        raise HarnessHeadsError("no run folder given; name at least one")
    plans = [] if plan is None else [load_plan(plan)]
    tasks: list[tuple[RunInfo | None, TaskEvidence]] = []
    notes: list[str] = []
    discoveries: dict[Path, Stored] = {}
    fan: list[Path] = []
    for path in dict.fromkeys(Path(p) for p in paths):
        contents = look(path)
        discoveries |= {folder.resolve(): read(folder) for folder in contents.discoveries}
        fan += contents.fan
        if (path / PLAN_FILE).is_file():
            plans.append(load_plan(path / PLAN_FILE))
        for folder, files in contents.runs.items():
            found = _read_folder(folder, files)
            tasks += found.tasks
            plans += found.plans
            notes += found.notes
    tasks += read_fan(fan)
    plans += declared_plans(fan)
    if discoveries and not tasks:
        raise HarnessHeadsError("discovery folders alone are no evidence; name a run folder too")
    found_sets = list(discoveries.values())
    names = sorted(d.head_set.name for d in found_sets)
    discovery = [{"sets": names, "overlaps": overlaps(found_sets)}] if found_sets else []
    return _merge(tasks, plans, notes, discovery)


def _read_folder(path: Path, files: Sequence[Path]) -> _Found:
    """One run folder; samples of lmms-eval's own tasks beside ours are named and left out."""
    found = _Found()
    own = json_object(path / RUN_FILE) if (path / RUN_FILE).is_file() else None
    if own is not None and isinstance(own.get("plan"), Mapping):
        found.plans.append(plan_from_dict(own["plan"], f"{path / RUN_FILE}"))
    if (path / PLAN_FILE).is_file():
        found.plans.append(load_plan(path / PLAN_FILE))
    newest = _newest(files, found.notes)
    ours = [file for file in newest if not _is_stock(file)]
    for file in newest:
        # alone, a folder without item records is a mistake; beside records of ours it is a part of the same run
        if file not in ours and ours:
            found.notes.append(
                f"task {_task_name(file)} is lmms-eval's own: its score stands in lmms-eval's results; to compare it "
                "under a set and its controls, name it in a plan and use `harness-heads run`"
            )
    for file in ours or newest:
        reader = TaskReader(_short(file))
        torn = _stream(file, reader, found.notes)
        if reader.first is None:
            raise HarnessHeadsError(f"{_short(file)}: no item record; were the tasks those of this package?")
        stock = all(not row.blocks for row in reader.rows.values())
        run = None if stock else _run_of(reader, own, file)
        task = reader.finish(-1)
        checks.complete(task, _asked(task.task, file, own, path), torn, _short(file), found.notes)
        checks.known_version(task, _short(file))
        checks.one_baseline(task, run, _short(file))
        found.tasks.append((run, audited(task)))
    return found


def _is_stock(file: Path) -> bool:
    """Whether the samples are those of a task that leaves no item records; judged by the first line."""
    for _, line, _ in _lines(file):
        try:
            value = json.loads(line)
        except ValueError:
            return False
        return isinstance(value, dict) and "record" not in value
    return False


def _asked(task: str, file: Path, own: Mapping[str, Any] | None, folder: Path) -> int | None:
    """How many items of a task the run was to answer: from run.json, else from lmms-eval's results beside the samples.

    The count is no score: it is compared with the records and never stands in for them.
    """
    if own is not None and task in (expected := _expected(own, folder)):
        return expected[task]
    match = SAMPLES.match(file.name)
    results = file.with_name(f"{match['stamp']}_results.json") if match is not None else file
    counts = json_object(results).get("n-samples") if match is not None and results.is_file() else None
    count = counts.get(task) if isinstance(counts, Mapping) else None
    if not isinstance(count, Mapping) or "effective" not in count:
        return None
    with readable(f"{results}: the number of samples of {task}"):
        return int(count["effective"])


def _expected(own: Mapping[str, Any], folder: Path) -> dict[str, int]:
    """Items that each task of a run was to answer."""
    with readable(f"{folder / RUN_FILE}: expected_items"):
        return {str(k): int(v) for k, v in (own.get("expected_items") or {}).items()}


def _newest(files: Sequence[Path], notes: list[str]) -> list[Path]:
    """One samples file a task and folder; where a task was run again, the later one."""
    latest: dict[tuple[Path, str], Path] = {}
    for file in files:
        match = SAMPLES.match(file.name)
        assert match is not None
        key = (file.parent, match["task"])
        if key in latest:
            notes.append(f"task {match['task']} was run more than once in one folder; the latest samples are used")
        latest[key] = max(file, latest.get(key, file), key=lambda p: p.name)
    return [latest[key] for key in sorted(latest)]


def _stream(file: Path, reader: TaskReader, notes: list[str]) -> bool:
    """Feed the records of one file, one line in memory at a time; True when the last line is torn."""
    for number, line, last in _lines(file):
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            if last:
                notes.append(f"{_short(file)}: line {number}, the last one, is torn; the other lines are used")
                return True
            raise HarnessHeadsError(f"{_short(file)}: line {number} is not JSON: {error}") from error
        record = value.get("record") if isinstance(value, dict) else None
        if isinstance(record, list) and len(record) == 1:
            record = record[0]
        if not isinstance(record, dict):
            raise HarnessHeadsError(
                f"{_short(file)}: line {number} holds no item record; were the tasks those of this package?"
            )
        where = f"{_short(file)}: line {number}, item {record.get('item')!r}"
        check_record(record, where)
        with readable(where):
            reader.add(item_record_from_dict(record))
    return False


def _lines(file: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Non-empty lines with their number and whether they are the last."""
    with file.open("rb") as stream:
        held: tuple[int, bytes] | None = None
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            if held is not None:
                yield (*held, False)
            held = (number, line)
        if held is not None:
            yield (*held, True)


def _run_of(reader: TaskReader, own: Mapping[str, Any] | None, file: Path) -> RunInfo:
    """The run block of a task: from its own answers, else from run.json."""
    runs = reader.runs or ([] if own is None else [run_info_from_dict(own, f"{file.parent}/{RUN_FILE}")])
    if not runs:
        raise HarnessHeadsError(f"{_short(file)}: no answer carries the run's settings, and there is no run.json")
    digests = sorted({checks.run_digest(run) for run in runs})
    if len(digests) > 1:
        raise HarnessHeadsError(f"{_short(file)}: its ranks were started with different settings or head sets")
    run = runs[0]
    if own is not None:
        run = replace(run, expected=_expected(own, file.parent))
    return run


def _merge(
    tasks: Sequence[tuple[RunInfo | None, TaskEvidence]],
    plans: Sequence[Plan],
    notes: Sequence[str],
    discovery: Sequence[Mapping[str, Any]],
) -> Evidence:
    """One Evidence, in an order that depends on content alone."""
    groups: dict[str, RunInfo] = {}
    for run, _ in tasks:
        if run is not None:
            key = checks.run_digest(run)
            groups[key] = checks.united(groups[key], run) if key in groups else run
    order = sorted(groups, key=lambda d: (str(groups[d].model["id"]), groups[d].op, d))
    rows: list[TaskEvidence] = []
    for run, task in tasks:
        rows.append(replace(task, run=-1 if run is None else order.index(checks.run_digest(run))))
    rows.sort(key=lambda t: (t.run, t.task, t.items))
    runs = tuple(groups[d] for d in order)
    checks.merged(runs, rows)
    return Evidence(
        runs, tuple(rows), _one_plan(runs, plans), tuple(sorted(set(notes))), tuple(sorted(discovery, key=canonical))
    )


def _one_plan(runs: Sequence[RunInfo], plans: Sequence[Plan]) -> Plan | None:
    """The plan whose digest the runs carry."""
    named = sorted({run.plan_digest for run in runs if run.plan_digest is not None})
    if len(named) > 1:
        raise HarnessHeadsError(f"runs of different plans ({named[0][:12]}, {named[1][:12]}); report them separately")
    by_digest = {plan.digest: plan for plan in plans}
    if named:
        odd = sorted(set(by_digest) - set(named))
        if odd:
            raise HarnessHeadsError(
                f"the runs were started with plan {named[0][:12]}, the plan at hand is {odd[0][:12]}: another one, or "
                "edited since; give the plan that they were started with"
            )
        return by_digest.get(named[0])
    return next(iter(by_digest.values()), None)


def _short(file: Path) -> str:
    """File name without its date: the same evidence gives the same text wherever and whenever it was written."""
    return f"samples of {_task_name(file)}"


def _task_name(file: Path) -> str:
    match = SAMPLES.match(file.name)
    return match["task"] if match else file.name
