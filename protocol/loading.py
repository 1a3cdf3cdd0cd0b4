"""Run folders -> Evidence: finds lmms-eval's files, streams the samples, and checks the runs against each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import item_record_from_dict
from harness_heads.protocol import checks
from harness_heads.protocol.discoveries import Discovery, is_discovery, overlaps, read_discovery
from harness_heads.protocol.evidence import Evidence, RunInfo, TaskEvidence, canonical, run_info_from_dict
from harness_heads.protocol.fan import declared_plans, is_member, read_fan
from harness_heads.protocol.leaks import audited
from harness_heads.protocol.plan import Plan, load_plan, plan_from_dict
from harness_heads.protocol.records import TaskReader

_SAMPLES = re.compile(r"^(?P<stamp>.*?)_?samples_(?P<task>.+)\.jsonl$")
_RESULTS = "*results.json"


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
    discovered: list[Discovery] = []
    fan: list[Path] = []
    for path in dict.fromkeys(Path(p) for p in paths):
        if is_discovery(path):
            discovered.append(read_discovery(path))
            continue
        if is_member(path):
            fan.append(path)
            continue
        found = _read_folder(path)
        tasks += found.tasks
        plans += found.plans
        notes += found.notes
    tasks += read_fan(fan)
    plans += declared_plans(fan)
    if discovered and not tasks:
        raise HarnessHeadsError("discovery folders alone are no evidence; name a run folder too")
    names = sorted(d.heads.name for d in discovered)
    discovery = [{"sets": names, "overlaps": overlaps(discovered)}] if discovered else []
    return _merge(tasks, plans, notes, discovery)


def _read_folder(path: Path) -> _Found:
    if path.is_file() and _SAMPLES.match(path.name):
        files = [path]
    elif path.is_dir():
        files = sorted(p for p in path.rglob("*.jsonl") if _SAMPLES.match(p.name))
    else:
        raise HarnessHeadsError(f"{path}: no such run folder")
    if not files:
        if next(path.rglob(_RESULTS), None) is not None:
            raise HarnessHeadsError(f"{path}: results without samples; run again with --log_samples")
        raise HarnessHeadsError(f"{path}: no samples in this folder; is it a run folder of lmms_eval?")
    found = _Found()
    own = _run_file(path if path.is_dir() else path.parent)
    if own is not None and isinstance(own.get("plan"), Mapping):
        found.plans.append(plan_from_dict(own["plan"], f"{path}/run.json"))
    if path.is_dir() and (path / "plan.json").is_file():
        found.plans.append(load_plan(path / "plan.json"))
    for file in _newest(files, found.notes):
        reader = TaskReader(_short(file))
        torn = _stream(file, reader, found.notes)
        if reader.first is None:
            raise HarnessHeadsError(f"{_short(file)}: no item record; were the tasks those of this package?")
        stock = all(not row.blocks for row in reader.rows.values())
        run = None if stock else _run_of(reader, own, file)
        task = reader.finish(-1)
        checks.complete(task, _asked(task.task, file, own), torn, _short(file), found.notes)
        checks.known_version(task, _short(file))
        checks.one_baseline(task, run, _short(file))
        found.tasks.append((run, audited(task)))
    return found


def _asked(task: str, file: Path, own: Mapping[str, Any] | None) -> int | None:
    """How many items of a task the run was to answer: from run.json, else from lmms-eval's results beside the samples.

    The count is no score: it is compared with the records and never stands in for them.
    """
    if own is not None and task in (own.get("expected_items") or {}):
        return int(own["expected_items"][task])
    match = _SAMPLES.match(file.name)
    results = file.with_name(f"{match['stamp']}_results.json") if match is not None else file
    counts = _json_file(results).get("n-samples") if match is not None and results.is_file() else None
    count = counts.get(task) if isinstance(counts, Mapping) else None
    return int(count["effective"]) if isinstance(count, Mapping) and "effective" in count else None


def _newest(files: Sequence[Path], notes: list[str]) -> list[Path]:
    """One samples file a task and folder; where a task was run again, the later one."""
    latest: dict[tuple[Path, str], Path] = {}
    for file in files:
        match = _SAMPLES.match(file.name)
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
        try:
            read = item_record_from_dict(record)
        except (TypeError, KeyError) as error:
            raise HarnessHeadsError(f"{_short(file)}: line {number}: item record cannot be read ({error})") from error
        reader.add(read)
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
    runs = reader.runs or ([] if own is None else [run_info_from_dict(own, f"{file.parent}/run.json")])
    if not runs:
        raise HarnessHeadsError(f"{_short(file)}: no answer carries the run's settings, and there is no run.json")
    digests = sorted({checks.run_digest(run) for run in runs})
    if len(digests) > 1:
        raise HarnessHeadsError(f"{_short(file)}: its ranks were started with different settings or head sets")
    run = runs[0]
    if own is not None:
        run = replace(run, expected={str(k): int(v) for k, v in (own.get("expected_items") or {}).items()})
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
                f"the runs carry plan {named[0][:12]}, the plan at hand is {odd[0][:12]}; it was edited after the run"
            )
        return by_digest.get(named[0])
    return next(iter(by_digest.values()), None)


def _run_file(folder: Path) -> Mapping[str, Any] | None:
    path = folder / "run.json"
    return _json_file(path) if path.is_file() else None


def _json_file(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HarnessHeadsError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise HarnessHeadsError(f"{path} holds no JSON object")
    return value


def _short(file: Path) -> str:
    """File name without its date: the same evidence gives the same text wherever and whenever it was written."""
    match = _SAMPLES.match(file.name)
    return f"samples of {match['task']}" if match else file.name
