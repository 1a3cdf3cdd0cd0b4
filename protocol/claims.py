"""Claims held against evidence: carried, or not and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness_heads.protocol import statistics as st
from harness_heads.protocol.analysis import Analysis, TaskAnalysis, Test, matching
from harness_heads.protocol.findings import Finding
from harness_heads.protocol.plan import Claim


@dataclass(frozen=True)
class Verdict:
    """One claim judged.

    Attributes:
        claim: the claim.  carried: whether the evidence carries it.
        numbers: what it was judged by, in words.
        reasons: why it is not carried, one each; empty where it is.
        p: the p that decided, NaN where none could be had.
    """

    claim: Claim
    carried: bool
    numbers: str
    reasons: tuple[str, ...]
    p: float

    @property
    def sentence(self) -> str:
        """The claim in one sentence, with its verdict."""
        head = claim_sentence(self.claim)
        end = f"carried ({self.numbers})" if self.carried else f"NOT carried: {'; '.join(self.reasons)}"
        return f"{head}: {end}."


def claim_sentence(claim: Claim) -> str:
    """What a claim says, in words."""
    against = f"its {claim.family} controls"
    least = f" by at least {claim.margin:g}" if claim.margin is not None else ""
    return {
        "necessity": f"{claim.set} is more necessary than {against} on {claim.task}{least}",
        "steerability": f"{claim.set} steers better than {against} on {claim.task}{least}",
        "null": f"{claim.set} is within {claim.margin} of the mean of {against} on {claim.task}",
        "silent": f"{claim.set} is not shown to act on {claim.task}: score within {claim.margin} of 0, or not above "
        f"{against} (absence is not shown by that)",
        "difference": f"{claim.set} scores higher than {claim.versus} on {claim.task}{least}",
    }[claim.kind]


def judge(analysis: Analysis, findings: Sequence[Finding]) -> tuple[Verdict, ...]:
    """Judge every claim of the plan; none where the evidence is exploratory."""
    plan = analysis.evidence.plan
    if plan is None:
        return ()
    if analysis.evidence.exploratory:
        why = "the runs were not started with this plan"
        return tuple(Verdict(claim, False, "", (why,), math.nan) for claim in plan.claims)
    return tuple(_judge(claim, analysis, findings) for claim in plan.claims)


def _judge(claim: Claim, a: Analysis, findings: Sequence[Finding]) -> Verdict:
    tests = matching(claim, a.tests)
    if not tests:
        return Verdict(claim, False, "", ("no test of this set, task, family and score in the evidence",), math.nan)
    if len(tests) > 1:
        names = ", ".join(sorted(t.effect.condition for t in tests))
        why = f"{len(tests)} tests fit it ({names}); the claim must name its condition or score"
        return Verdict(claim, False, "", (why,), math.nan)
    test = tests[0]
    plan = a.evidence.plan
    if plan is None or a.evidence.runs[test.run].plan_digest != plan.digest:
        return Verdict(claim, False, "", ("the runs of this test were not started with this plan",), math.nan)
    broken = [f"{f.rule}: {f.text}" for f in breaking(findings, test)]
    if claim.kind == "null":
        return _null(claim, test, a.task_of(test), broken)
    if claim.kind == "silent":
        return _silent(claim, test, a.task_of(test), broken)
    if claim.kind == "difference":
        return _difference(claim, test, a, broken)
    return _above(claim, test, broken)


def _above(claim: Claim, test: Test, reasons: list[str]) -> Verdict:
    e = test.effect
    shown = (
        f"{e.mean:.3f}, controls {e.control_mean:.3f}, SD {e.control_sd:.3f}, Holm p = {test.holm:.3g} "
        f"over m = {test.m}, R = {test.draws}"
    )
    reasons += shortfalls(test, claim.alpha, claim.margin)
    return Verdict(claim, not reasons, shown, tuple(reasons), test.holm)


def shortfalls(test: Test, alpha: float, margin: float | None = None) -> list[str]:
    """What a test lacks to lie above its controls, one line each; none where it does.

    The report's opening says of a set what a claim about it would be granted, by these same criteria.
    """
    e = test.effect
    out = []
    if not test.holm <= alpha:
        out.append(f"Holm p = {test.holm:.3g} is above {alpha:g}")
    if not e.low > 0:
        out.append(f"the item interval [{e.low:.3f}, {e.high:.3f}] does not lie above 0")
    if margin is not None and not test.resampled.crossed_low >= margin:
        out.append(
            f"the lower end over items and draws is {test.resampled.crossed_low:.3f}, below the margin {margin:g}"
        )
    return out


def breaking(findings: Sequence[Finding], test: Test) -> tuple[Finding, ...]:
    """The findings that no claim about a test survives."""
    return tuple(f for f in findings if f.breaks and test.id in f.tests)


def _silent(claim: Claim, test: Test, task: TaskAnalysis, reasons: list[str]) -> Verdict:
    """A negative control's claim: small, or not told apart from random sets. Equivalence is printed beside it."""
    assert claim.margin is not None
    tost = _null(claim, test, task, [])
    e = test.effect
    shown = f"score {e.mean:.4f}, rank p = {test.p:.3g} with R = {test.draws}; {tost.numbers}"
    if not (abs(e.mean) < claim.margin or test.p > claim.alpha):
        reasons.append(
            f"{shown}: neither is the score within {claim.margin:g} of 0 nor the rank p above {claim.alpha:g}"
        )
    reasons = _not_about_power(reasons)
    return Verdict(claim, not reasons, shown, tuple(reasons), test.p)


def _not_about_power(reasons: list[str]) -> list[str]:
    """Reasons without the rules on tests that could show nothing: they speak of another question here."""
    return [r for r in reasons if not r.startswith(("low-power-as-absence", "floor-above-alpha"))]


def _null(claim: Claim, test: Test, task: TaskAnalysis, reasons: list[str]) -> Verdict:
    """Equivalence of the set's score and its control population's mean, over items."""
    assert claim.margin is not None
    difference = _versus_controls(test, task)
    estimate = st.t_interval(difference, st.cluster_codes(task.evidence.clusters))
    found = st.equivalence(float(estimate.mean), float(estimate.se), estimate.df, claim.margin, claim.alpha)
    shown = (
        f"difference {float(estimate.mean):.4f}, {1 - 2 * claim.alpha:.0%} interval "
        f"[{found.low:.4f}, {found.high:.4f}], TOST p = {found.p:.3g}"
    )
    if not found.p <= claim.alpha:
        reasons.append(f"the interval [{found.low:.4f}, {found.high:.4f}] is not inside +-{claim.margin:g}")
    # power is judged by the margin here: the rule on silent tests does not apply to a test of equivalence
    reasons = _not_about_power(reasons)
    return Verdict(claim, not reasons, shown, tuple(reasons), found.p)


def _versus_controls(test: Test, task: TaskAnalysis) -> st.Floats:
    from harness_heads.protocol.effects import control_keys

    table = task.table(test.effect.score, test.effect.condition)
    assert table is not None
    own = table.of([test.effect.key])[:, 0]
    keys = control_keys(task.run, test.effect.key, test.effect.family)
    return own - table.of(keys).mean(axis=1) if keys else np.full(own.shape, np.nan)


def _difference(claim: Claim, test: Test, a: Analysis, reasons: list[str]) -> Verdict:
    from dataclasses import replace

    other = matching(replace(claim, set=claim.versus or ""), a.tests)
    other = tuple(
        t for t in other if t.effect.condition == test.effect.condition and t.effect.score == test.effect.score
    )
    if len(other) != 1:
        why = f"{len(other)} tests of {claim.versus} fit it, one is needed"
        return Verdict(claim, False, "", (why,), math.nan)
    first, second = a.task_of(test), a.task_of(other[0])
    if first.evidence.items != second.evidence.items:
        return Verdict(claim, False, "", ("the two sets were measured on different items",), math.nan)
    tables = [t.table(test.effect.score, test.effect.condition) for t in (first, second)]
    assert tables[0] is not None and tables[1] is not None
    d = tables[0].of([test.effect.key])[:, 0] - tables[1].of([other[0].effect.key])[:, 0]
    found = st.paired_t(d, st.cluster_codes(first.evidence.clusters), "upper")
    shown = f"paired difference {found.difference:.4f} [{found.low:.4f}, {found.high:.4f}], p = {found.p:.3g}"
    if not found.p <= claim.alpha:
        reasons.append(f"paired p = {found.p:.3g} is above {claim.alpha:g} {found.reason}".rstrip())
    if claim.margin is not None and not found.low >= claim.margin:
        reasons.append(f"the lower end {found.low:.4f} is below the margin {claim.margin:g}")
    return Verdict(claim, not reasons, shown, tuple(reasons), found.p)
