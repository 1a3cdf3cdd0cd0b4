"""The opening of a report: status, badges, and one sentence a set."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness_heads.protocol.analysis import Analysis, Test, matching
from harness_heads.protocol.claims import breaking, shortfalls
from harness_heads.protocol.figures import dots_figure
from harness_heads.protocol.findings import Finding
from harness_heads.protocol.formats import counted, interval, joined, number, p_value
from harness_heads.protocol.layout import Sentence
from harness_heads.protocol.plan import TESTED
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.svg import Figure

EMBEDDED = "tiny-digits"
MOST_HEADLINES = 24
_VERBS = {
    "ncs": "is necessary beyond its controls",
    "ncs_grid": "is necessary beyond its controls",
    "grounding_drop": "is necessary for grounding beyond its controls",
    "stock_drop": "costs the task more than its controls",
    "stock_loss": "costs the task more than its controls",
    "cers": "steers better than its controls",
}


def status(a: Analysis) -> str:
    """First line of the report."""
    plan = a.evidence.plan
    if not a.evidence.runs:
        return "No intervention: a stock model answered, and nothing was done to its heads."
    if a.evidence.exploratory:
        digests = {run.plan_digest for run in a.evidence.runs}
        why = "no plan fixed in advance what was to be tested"
        if plan is not None:
            told = "no run was" if digests == {None} else "not every run was"
            why = f"{told} started with the plan at hand ({plan.digest[:12]})"
        elif digests != {None}:
            why = "the runs name a plan whose content is not at hand"
        return f"EXPLORATORY: {why}. Nothing below is a confirmed claim."
    assert plan is not None
    return f"Planned: {counted(len(plan.claims), 'claim')} fixed before the run, plan {plan.digest[:12]}."


def badges(a: Analysis) -> tuple[str, ...]:
    """Facts to know first."""
    out = []
    if any(is_embedded(str(run.model["id"])) for run in a.evidence.runs):
        out.append("demonstration model, chosen: made for this package and picked among several trained ones")
    if a.evidence.plan is not None and a.evidence.plan.negative_controls:
        out.append(f"negative controls: {', '.join(a.evidence.plan.negative_controls)}")
    short = [t for t in a.tasks if t.evidence.n < t.evidence.n_planned]
    out += [f"{t.evidence.task}: {t.evidence.n} of {t.evidence.n_planned} planned items" for t in short]
    return tuple(out)


def is_embedded(model: str) -> bool:
    """The package's own trained model, by name or by path."""
    return model.rstrip("/").replace("\\", "/").split("/")[-1].split("@")[0] == EMBEDDED or model.startswith(EMBEDDED)


def sentences(a: Analysis, found: Sequence[Finding]) -> tuple[Sentence, ...]:
    """One sentence per leading test; tests of the first condition of each task come first.

    Args:
        found: what the pitfall rules find; a set that one breaks has shown nothing.
    """
    if a.evidence.runs and not any(run.sets.role(r) for run in a.evidence.runs for r in ("discovered", "subset")):
        return (Sentence("The host alone was run, under no head set: arms and audits below, and no effect.", "none"),)
    first = {t.id for t in headline(a)}
    order = sorted(a.leading, key=lambda t: t.id not in first)
    return tuple(_sentence(a, t, found, t.id in first) for t in order)


def headline(a: Analysis) -> tuple[Test, ...]:
    """Tests that a reader sees first: those that claims speak of, else the first condition of every task and score."""
    claimed = tuple(t for t in a.leading if t.confirmatory)
    if claimed:
        places = {(t.run, t.effect.task, t.effect.score, t.effect.condition) for t in claimed}
        return tuple(t for t in a.leading if (t.run, t.effect.task, t.effect.score, t.effect.condition) in places)[
            :MOST_HEADLINES
        ]
    first: dict[tuple[object, ...], str] = {}
    for t in a.leading:
        first.setdefault((t.run, t.effect.task, t.effect.score), t.effect.condition)
    shown = [t for t in a.leading if first[(t.run, t.effect.task, t.effect.score)] == t.effect.condition]
    return tuple(shown[:MOST_HEADLINES])


def figures(a: Analysis) -> tuple[Figure, ...]:
    """The first figures: headline tests against their controls, one figure a score."""
    out = []
    for score in dict.fromkeys(t.effect.score for t in headline(a)):
        tests = [t for t in headline(a) if t.effect.score == score]
        out.append(dots_figure(tests, f"headline-{score}", f"{LABELS[score]}: each set against its controls"))
    return tuple(out)


def _sentence(a: Analysis, t: Test, found: Sequence[Finding], headline: bool) -> Sentence:
    e = t.effect
    head = f"{e.name} on {e.task} ({e.condition}): {LABELS[e.score]} {number(e.mean)} {interval(e.low, e.high)}"
    if e.r == 0:
        return Sentence(f"{head}; without control sets this says nothing about the set.", "bad", headline)
    against = f"{counted(e.r, f'{e.family} control')}, mean {number(e.control_mean)}, SD {number(e.control_sd)}"
    p = f"rank p = {p_value(t.p)}, Holm p = {p_value(t.holm)} over {t.m}"
    if math.isnan(t.p):
        return Sentence(f"{head}; not estimable ({e.reasons.get('mean', '')}).", "bad", headline)
    alpha, margin = _criteria(a, t)
    if t.holm <= alpha:
        lacking = shortfalls(t, alpha, margin)
        lacking += [f"pitfall {rule} breaks it" for rule in dict.fromkeys(f.rule for f in breaking(found, t))]
        if not lacking:
            return Sentence(f"{head}: it {_VERBS[e.score]} ({against}; {p}).", "good", headline)
        return Sentence(f"{head}: above {against} ({p}), but {joined(lacking)}: nothing is shown.", "none", headline)
    if e.r > 0 and t.m / (e.r + 1) > alpha and t.p <= e.floor + 1e-12:
        few = f"above every control, but {e.r} are too few for {counted(t.m, 'test')}"
        return Sentence(f"{head}: {few} ({against}; {p}).", "none", headline)
    return Sentence(f"{head}: not shown to differ from {against} ({p}).", "none", headline)


def _criteria(a: Analysis, t: Test) -> tuple[float, float | None]:
    """Level and margin that a test must pass: those of the claims about it, the strictest of several."""
    plan = a.evidence.plan if t.confirmatory else None
    claims = [c for c in plan.claims if c.kind in TESTED and t in matching(c, a.tests)] if plan is not None else []
    margins = [c.margin for c in claims if c.margin is not None]
    return min((c.alpha for c in claims), default=a.alpha), max(margins, default=None)
