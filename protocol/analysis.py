"""Evidence -> Analysis: all numbers of a report, computed once; every rendering reads them from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness_heads.protocol import statistics as st
from harness_heads.protocol.audits import Audit, audits
from harness_heads.protocol.effects import (
    ArmLevel,
    Effect,
    arm_levels,
    control_keys,
    effects,
    families_of,
    headroom,
)
from harness_heads.protocol.evidence import Evidence, TaskEvidence
from harness_heads.protocol.plan import TESTED, Claim
from harness_heads.protocol.resampled import RESAMPLES, Bootstrap, Resampled
from harness_heads.protocol.runs import RunInfo
from harness_heads.protocol.scores import ScoreTable, score_tables

ALPHA = 0.05
CLAIM_SCORES = {
    "necessity": ("ncs", "ncs_grid", "grounding_drop", "stock_drop", "stock_loss"),
    "steerability": ("cers",),
}


@dataclass(frozen=True)
class Test:
    """One set, score and condition against one family: what a claim is judged by.

    Attributes:
        run: index of the run; a set may be tested in several.
        model: model id.
        effect: the exact numbers.  resampled: the bootstrap ones.
        p: rank p under the plan's tail and stopping rule; ``draws`` controls were used for it.
        holm, max_t: adjusted over ``m`` tests; NaN where p is.
        confirmatory: a claim of the plan speaks of it; the others are exploratory.
        se: standard error of the set's mean over items.
        detectable: effect above the control mean that this R would have shown with probability .8.
        detectable_reason: why there is none.
        over_headroom: mean / (P matched - P mismatched), for NCS.
        mass_before, mass_after, control_mass_before, control_mass_after: dose on the task's main condition.
        outside_zero: share of control sets whose own item interval excludes 0.
        specs: what the run was told to find the set by: a name, a file or a discovery folder.
    """

    run: int
    model: str
    effect: Effect
    resampled: Resampled
    p: float
    draws: int
    holm: float
    max_t: float
    m: int
    confirmatory: bool
    se: float
    detectable: float
    detectable_reason: str
    over_headroom: float
    mass_before: float
    mass_after: float
    control_mass_before: float
    control_mass_after: float
    outside_zero: float
    specs: tuple[str, ...] = ()

    def called(self, name: str) -> bool:
        """Whether a plan's or a claim's name of a set means this test's."""
        return any(_same_name(own, name) for own in (self.effect.name, *self.specs))

    @property
    def id(self) -> str:
        """Unique within a report."""
        e = self.effect
        return "/".join([str(self.run), e.task, e.score, e.condition, e.key, e.family])


@dataclass(frozen=True)
class TaskAnalysis:
    """One task of one run.

    Attributes:
        evidence, run: what it was computed from.
        tables: item scores.  effects: every score, set and family.  levels: the arms.  headroom: matched - mismatched.
    """

    evidence: TaskEvidence
    run: RunInfo
    tables: tuple[ScoreTable, ...]
    effects: tuple[Effect, ...]
    levels: tuple[ArmLevel, ...]
    headroom: float
    audits: tuple[Audit, ...]

    def table(self, score: str, condition: str) -> ScoreTable | None:
        """One score table, ``None`` where the task has no such score."""
        return next((t for t in self.tables if t.score == score and t.condition == condition), None)

    def effect(self, score: str, condition: str, key: str, family: str) -> Effect | None:
        """One effect, ``None`` where the task has no such score."""
        wanted = (score, condition, key, family)
        return next((e for e in self.effects if (e.score, e.condition, e.key, e.family) == wanted), None)


@dataclass(frozen=True)
class Analysis:
    """All numbers of a report.

    Attributes:
        evidence: what it was computed from.
        tasks: tasks answered by wrapped models.  stock: tasks answered by stock models.
        tests: primary tests, every family.
        alpha: level of the report.
    """

    evidence: Evidence
    tasks: tuple[TaskAnalysis, ...]
    stock: tuple[TaskEvidence, ...]
    tests: tuple[Test, ...]
    alpha: float

    @property
    def m(self) -> int:
        """Largest number of tests that an adjustment counts."""
        return max((t.m for t in self.tests), default=0)

    @property
    def leading(self) -> tuple[Test, ...]:
        """Tests against each set's first family: the exact null where it was drawn."""
        return tuple(t for t in self.tests if t.effect.family == self._first_family(t))

    def task_of(self, test: Test) -> TaskAnalysis:
        """The task a test belongs to."""
        return next(t for t in self.tasks if t.evidence.run == test.run and t.evidence.task == test.effect.task)

    def _first_family(self, test: Test) -> str:
        found = families_of(self.evidence.runs[test.run], test.effect.key)
        return found[0] if found else ""


def analyse(evidence: Evidence, resamples: int = RESAMPLES) -> Analysis:
    """Compute everything.

    Args:
        evidence: checked evidence.
        resamples: bootstrap resamples of every interval.
    """
    tasks = tuple(_task(task, evidence.runs[task.run]) for task in evidence.tasks if task.run >= 0)
    stock = tuple(task for task in evidence.tasks if task.run < 0)
    alpha = evidence.plan.alpha if evidence.plan is not None else ALPHA
    bootstrap = Bootstrap(resamples)
    tests = [_test(task, e, evidence, bootstrap) for task in tasks for e in task.effects if e.primary]
    return Analysis(evidence, tasks, stock, tuple(_adjust(tests, evidence, alpha)), alpha)


def matching(claim: Claim, tests: Sequence[Test]) -> tuple[Test, ...]:
    """Tests that a necessity, steerability or null claim speaks of."""
    scores = (claim.score,) if claim.score else CLAIM_SCORES.get(claim.kind, CLAIM_SCORES["necessity"] + ("cers",))
    return tuple(
        t
        for t in tests
        if t.effect.task == claim.task
        and t.called(claim.set)
        and t.effect.family == claim.family
        and t.effect.score in scores
        and (claim.condition is None or t.effect.condition == claim.condition)
    )


def _same_name(name: str, claimed: str) -> bool:
    """``tiny-digits/a`` is also meant by ``a``, by ``tiny-digits/a@<digest>`` and by the cut that was run of it."""
    base = claimed if "@top" in claimed else claimed.split("@")[0]
    name = name if "@top" in claimed else name.split("@top")[0]
    return name == base or name.split("/")[-1] == base


def _task(task: TaskEvidence, run: RunInfo) -> TaskAnalysis:
    tables = score_tables(task, run)
    levels = arm_levels(task, run)
    return TaskAnalysis(
        task,
        run,
        tables,
        effects(task, run, tables),
        levels,
        headroom(levels),
        audits(task.task, levels, any(t.score == "ncs_grid" for t in tables)),
    )


def _test(task: TaskAnalysis, effect: Effect, evidence: Evidence, bootstrap: Bootstrap) -> Test:
    table = task.table(effect.score, effect.condition)
    assert table is not None
    codes = st.cluster_codes(task.evidence.clusters)
    keys = control_keys(task.run, effect.key, effect.family)
    null = table.of(keys)
    p, draws = _planned_p(effect, evidence)
    before, after, control_before, control_after = _dose(task, effect, keys)
    se = float(st.t_interval(table.of([effect.key])[:, 0], codes).se)
    return Test(
        run=task.evidence.run,
        model=str(task.run.model["id"]),
        effect=effect,
        resampled=bootstrap.run(table.of([effect.key])[:, 0], null, codes),
        p=p,
        draws=draws,
        holm=math.nan,
        max_t=math.nan,
        m=1,
        confirmatory=False,
        se=se,
        detectable=math.nan,
        detectable_reason="",
        over_headroom=effect.mean / task.headroom if effect.score == "ncs" and task.headroom > 0 else math.nan,
        mass_before=before,
        mass_after=after,
        control_mass_before=control_before,
        control_mass_after=control_after,
        outside_zero=_outside_zero(null, codes),
        specs=_specs(task.run, effect.key),
    )


def _specs(run: RunInfo, key: str) -> tuple[str, ...]:
    """The entries of the run's ``head_set`` that a set came from: each is pinned by the digest of its whole set."""
    entry = next(e for e in run.tested if e.key == key)
    pinned = [str(spec).rpartition("@") for spec in run.settings.get("head_set") or ()]
    return tuple(spec for spec, _, digest in pinned if spec and (entry.parent or key).startswith(digest))


def _planned_p(effect: Effect, evidence: Evidence) -> tuple[float, int]:
    """Rank p under the plan's tail and stopping rule (upper tail and all draws without a plan)."""
    plan = evidence.plan
    if plan is not None and plan.stopping == "two-stage" and plan.tails == "upper" and effect.r >= plan.first:
        staged = st.two_stage_p(effect.mean, effect.controls, plan.first)
        return staged.p, staged.draws
    if plan is not None and plan.stopping == "sequential" and plan.tails == "upper" and effect.r:
        staged = st.sequential_p(effect.mean, effect.controls, plan.first)
        return staged.p, staged.draws
    tail = "upper" if plan is None else plan.tails
    p = {"upper": effect.p_upper, "lower": effect.p_lower, "two-sided": effect.p_two}[tail]
    return p, effect.r


def possible_draws(effect: Effect, evidence: Evidence) -> int:
    """Controls that the test could have had: the plan's R where its stopping rule, fixed beforehand, ended them early.

    A first stage that ends with an exceedance has no floor of its own: more draws would have followed without one.
    """
    plan = None if evidence.exploratory else evidence.plan
    if plan is None or plan.r is None or plan.stopping == "fixed" or not 0 < effect.r < plan.r:
        return effect.r
    reached = sum(c >= effect.mean - st.TOLERANCE for c in effect.controls)
    ended = reached > 0 and effect.r == plan.first if plan.stopping == "two-stage" else reached >= plan.first
    return plan.r if ended else effect.r


def _adjust(tests: Sequence[Test], evidence: Evidence, alpha: float) -> list[Test]:
    """Holm and max-T over the tests that were made.

    With a plan, the tests that its claims speak of are adjusted over the plan's m, and all others, exploratory, over
    everything that was tested against the same family. Without one, every test is exploratory.
    """
    plan = None if evidence.exploratory else evidence.plan
    claimed = set()
    if plan is not None:
        for claim in plan.claims:
            if claim.kind in TESTED:
                claimed |= {t.id for t in matching(claim, tests) if evidence.runs[t.run].plan_digest == plan.digest}
    out: dict[str, Test] = {}
    for family in sorted({t.effect.family for t in tests}):
        mine = [t for t in tests if t.effect.family == family]
        planned = [t for t in mine if t.id in claimed]
        rest = [t for t in mine if t.id not in claimed]
        for group, m in ((planned, max(plan.m if plan else 0, len(planned))), (rest, len(mine))):
            if not group:
                continue
            holm = st.holm([t.p for t in group], m)
            joint = _joint(group)
            for test, h, x in zip(group, holm, joint, strict=True):
                e = test.effect
                found = st.detectable_by_rank(possible_draws(e, evidence), e.control_sd, test.se, alpha, m)
                out[test.id] = replace(
                    test,
                    holm=float(h),
                    max_t=float(x),
                    m=m,
                    confirmatory=group is planned,
                    detectable=found.effect,
                    detectable_reason=found.reason,
                )
    return [out[t.id] for t in tests]


def _joint(group: Sequence[Test]) -> st.Floats:
    """max-T over a group; NaN unless all have equally many draws."""
    r = {t.effect.r for t in group}
    if len(r) != 1 or r == {0}:
        return np.full(len(group), np.nan)
    return st.max_t([t.effect.mean for t in group], [t.effect.controls for t in group])


def _dose(task: TaskAnalysis, effect: Effect, controls: Sequence[str]) -> tuple[float, float, float, float]:
    """Mass on the condition's keys before and after, for the set and for its controls, over arms and items."""
    own: list[tuple[float, float]] = []
    null: list[tuple[float, float]] = []
    for (_, condition), block in task.evidence.blocks.items():
        if effect.key not in block.sets or not of_contrast(condition, effect.condition):
            continue
        for keys, into in (([effect.key], own), (list(controls), null)):
            columns = block.columns(keys)
            if columns and task.evidence.n:
                into.append((float(np.mean(block.before[:, columns])), float(np.mean(block.after[:, columns]))))
    return (*_pair(own), *_pair(null))


def of_contrast(condition: str, scored: str) -> bool:
    """Whether a condition that was run is (one side of) the one that a score is named by.

    ``steer:correct:beta=1`` and ``steer:distractor:beta=1`` are the sides of ``steer:beta=1``.
    """
    run, parts = condition.split(":"), scored.split(":")
    if parts[0] == "steer":
        return run[0] == "steer" and run[2:] == parts[1:]
    if parts[:2] == ["mask", "cell"]:
        return run[0] == "mask" and run[1:2] in (["correct"], ["distractor"]) and run[2:] == parts[2:]
    return condition == scored


def _pair(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if not values:
        return math.nan, math.nan
    return sum(v[0] for v in values) / len(values), sum(v[1] for v in values) / len(values)


def _outside_zero(null: st.Floats, codes: st.Codes) -> float:
    if null.shape[1] == 0 or null.shape[0] < 2:
        return math.nan
    estimate = st.t_interval(null, codes)
    return float(np.mean((estimate.low > 0) | (estimate.high < 0)))
