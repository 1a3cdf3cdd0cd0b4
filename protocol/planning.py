"""A plan from a few choices: how many controls it needs, what it costs, what it could show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol import statistics as st
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.formats import counted
from harness_heads.protocol.malformed import json_object, readable
from harness_heads.protocol.plan import TESTED, Claim, Plan

REQUESTS = {"necessity": 4, "steerability": 3, "null": 4, "silent": 4, "difference": 4}
"""Prompts per item (arms) of the shipped recipes."""
INTERVENED = {"necessity": 3, "steerability": 2, "null": 3, "silent": 3, "difference": 3}
"""Arm and condition pairs that are answered once per set: matched, mismatched, text; grid both ways."""
READER_BYTES, READER_SHARE = 110e6, 1.05
"""Memory of a report: that of the imports, and as much again as the samples (reports/benchmarks/samples.json)."""
BYTES_PER_ANSWER = 120
"""JSON of four log-probabilities, key included; lmms-eval's samples hold it about three times."""


@dataclass(frozen=True)
class Expectation:
    """What is guessed before a run.

    Attributes:
        conditions: betas x row scopes per arm.
        item_sd: SD of an item's score.  control_sd: SD between control sets.
        seconds: measured seconds per item, condition and set; ``None`` where nothing was measured.

    Raises:
        HarnessHeadsError: a guess that is no finite number above 0.
    """

    conditions: int = 1
    item_sd: float = 0.4
    control_sd: float = 0.01
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise HarnessHeadsError(f"{name.replace('_', '-')} = {value:g} must be a finite number above 0")


def draft(
    *,
    claims: Sequence[str],
    differences: Sequence[str],
    pretrained: str,
    k: int | None,
    n: int,
    r: int | None,
    m: int | None,
    alpha: float,
    tails: str,
    families: tuple[str, ...],
    stopping: str,
    negative_controls: tuple[str, ...],
    tuned_on: str | None,
    declared: Sequence[str],
) -> Plan:
    """A plan; R follows from alpha and m where it is not given, doubled so that one control above does not kill it.

    Args:
        claims: ``KIND:SET:TASK[:MARGIN]``.  differences: ``SET:VERSUS:TASK[:MARGIN]``.
        declared: ``ITEM=TEXT`` for checklist items that no evidence shows.

    Raises:
        HarnessHeadsError: a claim that cannot be read, or whatever the plan finds wrong.
    """
    made = [_claim(text, families[0], alpha) for text in claims]
    made += [_difference(text, families[0], alpha) for text in differences]
    tests = m if m is not None else max(1, sum(c.kind in TESTED for c in made))
    controls = r if r is not None else st.minimum_controls(alpha, tests, exceedances=1)
    names = [name for c in made for name in (c.set, c.versus) if name]
    return Plan(
        claims=tuple(made),
        settings={"pretrained": pretrained},
        sets=tuple(dict.fromkeys([*names, *negative_controls])),
        tasks=tuple(dict.fromkeys(c.task for c in made)),
        k=k,
        n=n,
        r=controls,
        families=families,
        alpha=alpha,
        tails=tails,
        m=tests,
        stopping=stopping,
        negative_controls=negative_controls,
        tuned_on=tuned_on,
        declared=dict(_declaration(text) for text in declared),
    )


def plan_text(plan: Plan, expected: Expectation) -> str:
    """What the plan costs and what it could show, for the terminal."""
    r = plan.r or 0
    sets = len(plan.sets)
    per_family = sets * r
    answered = 1 + sets + per_family * len(plan.families)
    by_task = {c.task: c.kind for c in plan.claims}
    prompts = sum(REQUESTS[kind] for kind in by_task.values()) * (plan.n or 0)
    answers = sum(INTERVENED[kind] for kind in by_task.values()) * (plan.n or 0) * answered * expected.conditions
    size = answers * BYTES_PER_ANSWER * 3 / 1e6
    lines = [
        f"plan {plan.digest[:12]}: {counted(len(plan.claims), 'claim')}, m = {counted(plan.m, 'test')} "
        f"at alpha = {plan.alpha:g}",
        f"controls: R = {r} per set and family ({', '.join(plan.families)}); least R for the floor "
        f"{st.minimum_controls(plan.alpha, plan.m)}, to survive one control above "
        f"{st.minimum_controls(plan.alpha, plan.m, 1)}",
        f"cost: {counted(prompts, 'prompt')}, {counted(answered, 'set')} each, {counted(answers, 'answer')} under "
        f"intervention (items x conditions x sets); samples of about {size:.0f} MB, "
        f"report in about {READER_BYTES / 1e6 + READER_SHARE * size:.0f} MB of memory",
    ]
    if expected.seconds is not None:
        total = answers * expected.seconds
        lines.append(f"time: about {total / 3600:.1f} hours at {expected.seconds:g} s an answer")
    else:
        lines.append("time: not estimated; measure a short run and give it by --like RUN, or --seconds per answer")
    set_se = expected.item_sd / math.sqrt(plan.n) if plan.n else math.nan
    rank = st.detectable_by_rank(r, expected.control_sd, set_se, plan.alpha, plan.m)
    shown = (
        f"cannot show anything: {rank.reason}" if math.isinf(rank.effect) else f"{rank.effect:.3f} above the controls"
    )
    items = st.detectable_by_items(plan.n or 0, expected.item_sd, plan.alpha)
    lines.append(
        f"smallest effect with probability .8, for item SD {expected.item_sd:g} and control SD "
        f"{expected.control_sd:g}: rank test {shown}; t test over items {items:.3f}"
    )
    return "\n".join(lines)


def seconds_per_answer(run: Path) -> float:
    """What one item under one condition and set took in a run: its evaluation time over its answers.

    Raises:
        HarnessHeadsError: a folder whose results file does not say how long it took, or that answered nothing of ours.
    """
    answers = sum(task.n * len(block.sets) for task in load_evidence([run]).tasks for block in task.blocks.values())
    seconds = 0.0
    for path in sorted(run.rglob("*_results.json")):
        taken = json_object(path).get("total_evaluation_time_seconds")
        with readable(f"{path}: total_evaluation_time_seconds"):
            seconds += float(taken) if taken is not None else 0.0
    if not answers or not seconds > 0:
        raise HarnessHeadsError(f"{run}: its results do not say how long it took; give --seconds")
    return seconds / answers


def _claim(text: str, family: str, alpha: float) -> Claim:
    kind, name, task, margin = _fields(text, "KIND:SET:TASK[:MARGIN]")
    return Claim(kind, name, task, family, alpha, margin)


def _difference(text: str, family: str, alpha: float) -> Claim:
    name, versus, task, margin = _fields(text, "SET:VERSUS:TASK[:MARGIN]")
    return Claim("difference", name, task, family, alpha, margin, versus)


def _fields(text: str, form: str) -> tuple[str, str, str, float | None]:
    parts = text.split(":")
    if len(parts) not in (3, 4) or not all(parts):
        raise HarnessHeadsError(f"claim {text!r} is not of the form {form}")
    try:
        margin = float(parts[3]) if len(parts) == 4 else None
    except ValueError as error:
        raise HarnessHeadsError(f"claim {text!r}: margin {parts[3]!r} is no number") from error
    return parts[0], parts[1], parts[2], margin


def _declaration(text: str) -> tuple[str, str]:
    number, sign, words = text.partition("=")
    if not sign or number not in ("17", "19") or not words:
        raise HarnessHeadsError(
            f"--declare {text!r}: write 17=... or 19=...; the other items are read from the evidence"
        )
    return number, words
