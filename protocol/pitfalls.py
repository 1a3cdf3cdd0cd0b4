"""Pitfall rules on tests: how a set is compared with its controls. Data rules are in :mod:`.pitfalls_data`.

Each rule is a generator over the analysis, named by what goes wrong. ``breaks`` marks what no claim survives; the rest
must be read along with the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness_heads.protocol import statistics as st
from harness_heads.protocol.analysis import Analysis, Test, matching, possible_draws
from harness_heads.protocol.findings import Finding
from harness_heads.protocol.formats import counted, number

LARGE_DETECTABLE = 0.1
"""A test that would have missed an effect of a tenth in P(c) cannot speak for absence."""
WEAK_FAMILIES = ("low_score",)
SELF_SIGNIFICANT = 0.2
"""Share of control sets 'significant against zero' above which zero is plainly the wrong null."""


def place(test: Test) -> str:
    """A test in words."""
    e = test.effect
    return f"{e.name}, {e.task}, {e.condition}" + (f" against {e.family}" if e.family else "")


def _find(rule: str, test: Test, text: str, breaks: bool) -> Finding:
    return Finding(rule, place(test), text, breaks, (test.id,))


def mean_interval_as_spread(a: Analysis) -> Iterator[Finding]:
    for t in a.tests:
        e = t.effect
        if e.r < 2 or math.isnan(t.p):
            continue
        mean = st.t_interval(e.controls)
        if float(mean.high) < e.mean and t.p > a.alpha and e.floor <= a.alpha:
            ends = f"{number(float(mean.low))} to {number(float(mean.high))}"
            text = (
                f"above the 95 % interval of the controls' mean ({ends}) but not above the "
                f"individual sets (rank p = {t.p:.3g}); that interval is no spread"
            )
            yield _find("mean-interval-as-spread", t, text, False)


def one_control_draw(a: Analysis) -> Iterator[Finding]:
    for t in a.tests:
        if t.effect.r == 1:
            text = "one control draw: its distance from the set has no scale; draw at least 19"
            yield _find("one-control-draw", t, text, True)


def no_controls(a: Analysis) -> Iterator[Finding]:
    for t in a.tests:
        if t.effect.r == 0:
            yield _find("no-controls", t, "no control sets; give controls=20 or more", True)


def test_against_zero(a: Analysis) -> Iterator[Finding]:
    for t in a.tests:
        e = t.effect
        excludes = e.low > 0 or e.high < 0
        if excludes and e.r and t.p > a.alpha and t.outside_zero > SELF_SIGNIFICANT:
            text = (
                f"the item interval excludes 0, and so it does for {t.outside_zero:.0%} of the control sets: zero is "
                "the wrong null, the controls are the right one"
            )
            yield _find("test-against-zero", t, text, False)


def floor_above_alpha(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        r = possible_draws(t.effect, a.evidence)
        if r > 1 and t.m / (r + 1) > a.alpha:
            need = st.minimum_controls(a.alpha, t.m)
            text = (
                f"R = {r} and m = {t.m}: the smallest adjusted p is {min(1, t.m / (r + 1)):.3g}, above "
                f"alpha = {a.alpha:g}; R >= {need} is needed"
            )
            yield _find("floor-above-alpha", t, text, True)


def controls_chosen_after_looking(a: Analysis) -> Iterator[Finding]:
    plan = a.evidence.plan
    if plan is not None and not a.evidence.exploratory:
        for t in a.leading:
            if plan.r is not None and possible_draws(t.effect, a.evidence) != plan.r:
                text = f"R = {t.effect.r}, the plan fixes R = {plan.r} ({plan.stopping})"
                yield _find("r-after-looking", t, text, True)
        return
    groups: dict[tuple[str, str], set[int]] = {}
    for t in a.leading:
        groups.setdefault((t.model, t.effect.score), set()).add(t.effect.r)
    for t in a.leading:
        counts = groups[(t.model, t.effect.score)]
        if len(counts) > 1 and t.effect.r == max(counts):
            text = (
                f"R = {t.effect.r} here and {min(counts)} elsewhere, without a stopping rule fixed in a plan; more "
                "draws for winners alone is only valid as a rule made beforehand"
            )
            yield _find("r-after-looking", t, text, True)


def control_mass_far(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        own, null = t.mass_before, t.control_mass_before
        matched = any(u.effect.family == "attention" and u.effect.key == t.effect.key for u in a.tests)
        if own > 0 and null >= 0 and (null == 0 or own / null > 1.5) and not matched:
            text = (
                f"the set holds {own:.3f} attention mass on the keys, its controls {null:.3f}: doses are not matched; "
                "add control_family=layer+attention"
            )
            yield _find("control-mass-far", t, text, False)


def low_power_as_absence(a: Analysis) -> Iterator[Finding]:
    claims = [c for c in a.evidence.plan.claims if c.kind == "null"] if a.evidence.plan else []
    claimed = {t.id for c in claims for t in matching(c, a.tests)}
    for t in a.leading:
        e = t.effect
        weak = math.isinf(t.detectable) or t.detectable > LARGE_DETECTABLE
        if e.r > 1 and t.p > a.alpha and weak and not math.isnan(t.detectable):
            shown = "any effect" if math.isinf(t.detectable) else f"effects below {t.detectable:.3f}"
            text = (
                f"not shown to lie above its controls, but {e.r} of them with SD {e.control_sd:.3f} could not have "
                f"shown {shown}; absence needs an equivalence margin"
            )
            yield _find("low-power-as-absence", t, text, t.id in claimed)


def fewer_control_heads(a: Analysis) -> Iterator[Finding]:
    for t in a.tests:
        run = a.evidence.runs[t.run]
        sizes = {len(c.heads) for c in run.sets.controls(t.effect.key, t.effect.family)}
        if sizes and min(sizes) < t.effect.k:
            text = f"control sets of {counted(min(sizes), 'head')} for a set of {t.effect.k}; they must be as large"
            yield _find("fewer-control-heads", t, text, True)


def controls_of_other_layers(a: Analysis) -> Iterator[Finding]:
    for t in a.tests:
        if t.effect.family != "layer":
            continue
        run = a.evidence.runs[t.run]
        own = next(e for e in run.tested if e.key == t.effect.key).heads.per_layer
        odd = sum(c.heads.per_layer != own for c in run.sets.controls(t.effect.key, "layer"))
        if odd:
            text = f"{odd} of {t.effect.r} layer-matched control sets have another layer profile than the set"
            yield _find("profile-mismatch", t, text, True)


def chosen_weak_controls(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        if t.effect.family in WEAK_FAMILIES:
            text = f"the only controls are of family {t.effect.family}, heads picked for ignoring the image; add layer"
            yield _find("weak-controls", t, text, True)


def repeated_controls(a: Analysis) -> Iterator[Finding]:
    for t in a.tests:
        run = a.evidence.runs[t.run]
        draws = run.sets.controls(t.effect.key, t.effect.family)
        distinct = len({c.heads.identity for c in draws})
        if draws and distinct < len(draws) / 2:
            text = (
                f"only {distinct} different sets among {len(draws)} control draws: the null is coarse; use a smaller k"
            )
            yield _find("repeated-controls", t, text, False)


def controls_leave_the_set_out(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        if t.effect.family == "layer" and a.evidence.runs[t.run].settings.get("exclude_set"):
            text = "controls were drawn outside the set, so that the rank p is not exact; use exclude_set=False"
            yield _find("set-left-out", t, text, False)


def unplanned_scan(a: Analysis) -> Iterator[Finding]:
    """k, beta or rows were scanned on the very items that the best of them is reported on."""
    plan = a.evidence.plan
    if plan is not None and not a.evidence.exploratory and plan.tuned_on not in ("evaluate", "evaluation"):
        return
    seen: dict[tuple[int, str, str], set[tuple[str, str]]] = {}
    for t in a.leading:
        group = (t.run, t.effect.task, t.effect.name.split("@")[0])
        seen.setdefault(group, set()).add((t.effect.condition, t.effect.name))
    for t in a.leading:
        scanned = seen[(t.run, t.effect.task, t.effect.name.split("@")[0])]
        if len(scanned) > 1:
            text = (
                f"{len(scanned)} choices of k, beta or rows were tried on the evaluation items; m counts them all, and "
                "picking the best needs other items (plan: tuned_on)"
            )
            yield _find("tuned-on-evaluation", t, text, True)
