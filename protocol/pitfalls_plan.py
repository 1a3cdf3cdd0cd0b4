"""Pitfall rules on the plan: what was fixed beforehand is what was run.

A plan's digest in a run says which plan it was started with; that it was also followed is held here. Only what changes
an answer counts: where files lay, and how many answers were made together, do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness_heads.errors import HarnessHeadsError
from harness_heads.head_sets import model_id
from harness_heads.protocol.analysis import Analysis
from harness_heads.protocol.evidence import TaskEvidence
from harness_heads.protocol.findings import Finding
from harness_heads.protocol.formats import counted
from harness_heads.protocol.pitfalls import _find
from harness_heads.protocol.plan import Plan
from harness_heads.protocol.runs import RunInfo
from harness_heads.settings import ACTS_UNDER, split_model_args

FREE = ("head_set", "top_k", "controls", "control_family", "plan", "verify", "condition_batch", "journal")
"""Settings that a rule of their own holds to the plan (sets, k, R), that a claim names, or that change no answer."""


def followed(a: Analysis) -> Plan | None:
    """The plan that the runs were started with; ``None`` for exploratory evidence."""
    return None if a.evidence.exploratory else a.evidence.plan


def fewer_items(a: Analysis) -> Iterator[Finding]:
    """Fewer items than the plan asks for, where the task has as many."""
    plan = followed(a)
    if plan is None or plan.n is None:
        return
    for t in a.tests:
        task = a.task_of(t).evidence
        asked = min(plan.n, task.n_planned)
        if answered(task) < asked:
            text = (
                f"{counted(answered(task), 'item')} answered, the plan asks for {asked}: when to stop was not left "
                "open; run it again without --limit, with the same --output_path"
            )
            yield _find("fewer-items", t, text, True)


def answered(task: TaskEvidence) -> int:
    """Items that were answered, those that a leak audit leaves out included."""
    return task.n + sum(map(len, task.dropped.values()))


def other_settings(a: Analysis) -> Iterator[Finding]:
    """Model, rows, keep_self, seed and the like: as the plan says, and at their defaults where it is silent."""
    plan = followed(a)
    if plan is None:
        return
    wanted = _settings(plan)
    for t in a.tests:
        for name, planned, was in _differences(wanted, plan, a.evidence.runs[t.run]):
            text = f"{name} = {was}, the plan says {planned}: run it as planned, or write the plan before another run"
            yield _find("other-settings", t, text, True)


def other_k(a: Analysis) -> Iterator[Finding]:
    """Sets of another size than the plan's; whole sets where it names none."""
    plan = followed(a)
    if plan is None:
        return
    sizes = (plan.k,) if plan.k is not None else tuple(_settings(plan)["top_k"])
    for t in a.tests:
        cut = next(e for e in a.evidence.runs[t.run].tested if e.key == t.effect.key).role == "subset"
        if t.effect.k not in sizes if sizes else cut:
            planned = f"k = {'+'.join(map(str, sizes))}" if sizes else "the whole set"
            yield _find("other-k", t, f"k = {t.effect.k}, the plan says {planned}; give top_k as planned", True)


def unplanned(a: Analysis) -> Iterator[Finding]:
    """Sets and tasks that the plan does not name."""
    plan = followed(a)
    if plan is None:
        return
    for t in a.tests:
        e = t.effect
        if plan.sets and not any(map(t.called, plan.sets)):
            yield _find("unplanned", t, f"the plan does not name set {e.name}; it is exploratory", True)
        if plan.tasks and e.task not in plan.tasks:
            yield _find("unplanned", t, f"the plan does not name task {e.task}; it is exploratory", True)


def left_out(a: Analysis) -> Iterator[Finding]:
    """Sets and tasks that the plan names and the evidence lacks: what did not come out may have been left out."""
    plan = followed(a)
    if plan is None:
        return
    for task in plan.tasks:
        if all(t.effect.task != task for t in a.tests):
            yield Finding("left-out", task, "the plan names this task, no run at hand answers it; add its run", False)
    for name in plan.sets:
        if not any(t.called(name) for t in a.tests):
            yield Finding("left-out", name, "the plan names this set, no run at hand tests it; add its run", False)


def _settings(plan: Plan) -> Mapping[str, Any]:
    """The plan's model_args that are ours, as a run records them."""
    known = split_model_args({}, ())[0].to_dict()
    try:
        return split_model_args({k: v for k, v in plan.settings.items() if k in known}, ())[0].to_dict()
    except HarnessHeadsError:
        return known  # a value that no run accepts: no run was started with it


def _differences(wanted: Mapping[str, Any], plan: Plan, run: RunInfo) -> Iterator[tuple[str, Any, Any]]:
    """Settings of a run that are not the plan's: name, planned, found."""
    model = plan.settings.get("pretrained")
    if model is not None and model_name(model) != model_name(run.model["id"]):
        yield "pretrained", model, run.model["id"]
    for name, was in sorted(run.settings.items()):
        acts = ACTS_UNDER.get(name, run.op) == run.op  # a masking run reads no beta
        if name in wanted and name not in FREE and acts and was != wanted[name]:
            yield name, _shown(wanted[name]), _shown(was)


def model_name(model: Any) -> str:
    """Last part of a model's id: the folder that it was loaded from may lie on another machine."""
    return model_id(str(model)).rstrip("/").split("/")[-1].lower()


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(str, value)) or "as the task says"
    return str(value)
