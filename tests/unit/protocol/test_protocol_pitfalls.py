"""Each pitfall rule: evidence that trips it, and a clean twin that differs in that one thing and does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn

from harness_heads.heads import Geometry
from harness_heads.protocol.analysis import Analysis, analyse
from harness_heads.protocol.claims import judge
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.plan import Claim, Plan
from harness_heads.protocol.report import read_report
from harness_heads.protocol.rules import RULES, findings

REPORTS = Path(__file__).parents[3] / "reports" / "tiny-digits"

CLEAN = syn.World(items=16, controls=39, effects={"a": 0.3}, control_mass=0.19)
Build = Callable[[Path], Analysis]


def analysis_of(folders: list[Path], plan: Plan | None = None) -> Analysis:
    evidence = load_evidence(folders)
    return analyse(evidence if plan is None else replace(evidence, plan=plan), 40)


@dataclass(frozen=True)
class Case:
    """World that trips a rule and its clean twin; ``write`` makes the run folder, ``edit`` changes its records."""

    rule: str
    bad: syn.World
    good: syn.World = field(default_factory=lambda: CLEAN)
    write: Callable[..., Path] = syn.write_ncs
    edit: Callable[[list[dict[str, Any]]], None] | None = None


def _no_dose(records: list[dict[str, Any]]) -> None:
    for record in records:
        record["arms"]["grid"].pop("dose")


def _split_clusters(records: list[dict[str, Any]]) -> None:
    """Two items of one picture, which the task calls two clusters."""
    records[1]["images"]["matched"] = records[0]["images"]["matched"]


def _flattened(records: list[dict[str, Any]]) -> None:
    """The mismatched arm rises from below chance when the set is masked."""
    key = next(e.key for e in syn.table(CLEAN) if e.role == "discovered")
    empty = next(e.key for e in syn.table(CLEAN) if e.role == "empty")
    for i, record in enumerate(records):
        cell = record["arms"]["mismatched"]["logprobs"]["mask:image"]
        cell[empty] = dict.fromkeys("ABCD", -1.6) | {"ABCD"[i % 4]: -1.7}
        cell[key] = dict.fromkeys("ABCD", -1.6) | {"ABCD"[i % 4]: -1.3}


def _still(records: list[dict[str, Any]]) -> None:
    for record in records:
        for arm in record["arms"].values():
            for cell in (arm.get("dose") or {}).values():
                for dose in cell.values():
                    dose["after"] = dose["before"]


CASES = [
    Case("no-controls", replace(CLEAN, controls=0)),
    Case("one-control-draw", replace(CLEAN, controls=1)),
    Case("floor-above-alpha", replace(CLEAN, controls=12)),
    Case("fewer-control-heads", replace(CLEAN, control_k=5)),
    Case("profile-mismatch", replace(CLEAN, control_k=5)),
    Case("weak-controls", replace(CLEAN, families=("low_score",))),
    Case("set-left-out", replace(CLEAN, settings={"exclude_set": True})),
    Case("control-mass-far", replace(CLEAN, control_mass=0.04)),
    Case("large-k", replace(CLEAN, k=14), replace(CLEAN, k=11)),
    Case("shared-images", replace(CLEAN, discovery={"images": [f"image-{i}" for i in range(4)]})),
    Case("shared-images", replace(CLEAN, discovery={"split": "evaluate"})),
    Case("audit-out-of-range", replace(CLEAN, mismatched=0.42)),
    Case("audit-out-of-range", replace(CLEAN, blank=0.1)),
    Case("audit-out-of-range", replace(CLEAN, oracle=0.6), CLEAN, syn.write_cers),
    Case("could-not-act", CLEAN, CLEAN, syn.write_ncs, _still),
    Case("nested-items", CLEAN, CLEAN, syn.write_ncs, _split_clusters),
    Case("steering-without-dose", CLEAN, CLEAN, syn.write_cers, _no_dose),
    Case("floor-bound-arm", CLEAN, CLEAN, syn.write_ncs, _flattened),
    Case(
        "low-power-as-absence",
        replace(CLEAN, effects={"a": 0.02}, control_sd=0.2),
        replace(CLEAN, effects={"a": -0.01}),
    ),
    Case(
        "tuned-on-evaluation",
        replace(CLEAN, rows=(("all",), ("question",)), controls=79),
        replace(CLEAN, controls=79),
    ),
    Case(
        "mean-interval-as-spread",
        replace(CLEAN, effects={"a": 0.08}, control_sd=0.1),
        replace(CLEAN, effects={"a": 0.5}),
    ),
    Case("test-against-zero", replace(CLEAN, effects={"a": 0.12}, control_sd=0.15), replace(CLEAN, effects={"a": 0.7})),
]


def _weaker(records: list[dict[str, Any]]) -> None:
    """Controls steered less far than the set."""
    own = next(e.key for e in syn.table(CLEAN) if e.role == "discovered")
    for record in records:
        for cell in record["arms"]["grid"]["dose"].values():
            for key, dose in cell.items():
                dose["after"] = 0.9 if key == own else 0.4


def _scores_follow_mass(tied: bool) -> Build:
    """Controls whose attention mass is their own score, or has nothing to do with it."""
    world = replace(CLEAN, control_sd=0.1)

    def build(folder: Path) -> Analysis:
        plain = analysis_of([syn.write_ncs(folder / "plain", world)])
        keys = [e.key for e in syn.table(world) if e.role == "control"]
        mass = dict(zip(keys, plain.tests[0].effect.controls, strict=True))

        def follow(records: list[dict[str, Any]]) -> None:
            for record in records:
                for arm in ("matched", "mismatched"):
                    for key, dose in record["arms"][arm]["dose"]["mask:image"].items():
                        dose["before"] = 0.5 + mass.get(key, 0.0)

        return analysis_of([syn.write_ncs(folder / "tied", world, edit=follow)]) if tied else plain

    return build


def _planned(drawn: int, r: int) -> Build:
    """A run of ``drawn`` controls under a plan that fixes R."""

    def build(folder: Path) -> Analysis:
        plan = Plan(claims=(Claim("necessity", "a", "ncs_digits"),), r=r)
        return analysis_of([syn.write_ncs(folder, replace(CLEAN, controls=drawn, plan=plan.digest))], plan)

    return build


PLANNED = Plan(
    claims=(Claim("necessity", "a", "ncs_digits"),),
    settings={"pretrained": "tiny-digits", "rows": "question"},
    sets=("tiny-digits/a",),
    tasks=("ncs_digits",),
    k=CLEAN.k,
    n=100,
    r=CLEAN.controls,
)
AS_PLANNED = {"rows": ["question"], "keep_self": False, "journal": "j.jsonl"}
"""A run's own record of the settings that :data:`PLANNED` fixes."""


def _under(plan: Plan = PLANNED, task: str = "ncs_digits", **changes: Any) -> Build:
    """A run under a plan: as planned, but for the changes."""
    world = replace(CLEAN, **{"settings": AS_PLANNED, **changes})

    def build(folder: Path) -> Analysis:
        return analysis_of([syn.write_ncs(folder, replace(world, plan=plan.digest), task)], plan)

    return build


def _two_sets(first: int, second: int) -> Build:
    """Two unplanned runs with their numbers of controls."""

    def build(folder: Path) -> Analysis:
        a = syn.write_ncs(folder / "a", replace(CLEAN, controls=first))
        b = syn.write_ncs(folder / "b", replace(CLEAN, controls=second, effects={"b": 0.4}), "ncs_other")
        return analysis_of([a, b])

    return build


def _pair(case: Case) -> tuple[Build, Build]:
    return (
        lambda folder: analysis_of([case.write(folder, case.bad, edit=case.edit)]),
        lambda folder: analysis_of([case.write(folder, case.good)]),
    )


# two heads of a four-head layer: six possible sets for 39 draws; of a sixteen-head layer: 120
FEW, MANY = (replace(CLEAN, geometry=Geometry((n, 0, 0, 0)), k=2, facts=False) for n in (4, 16))
TWINS: list[tuple[str, Build, Build]] = [
    *((case.rule, *_pair(case)) for case in CASES),
    ("repeated-controls", *_pair(Case("repeated-controls", FEW, MANY))),
    ("unmatched-dose", *_pair(Case("unmatched-dose", CLEAN, CLEAN, syn.write_cers, _weaker))),
    ("mass-explains-score", _scores_follow_mass(True), _scores_follow_mass(False)),
    ("r-after-looking", _two_sets(79, 120), _two_sets(79, 79)),
    ("r-after-looking", _planned(39, 250), _planned(39, 39)),
    # the plan asks for 100 items; the task plans as many as were answered, or more
    ("fewer-items", _under(n_planned=200), _under()),
    ("fewer-items", _under(replace(PLANNED, n=CLEAN.items + 1), n_planned=200), _under(n_planned=CLEAN.items)),
    ("other-settings", _under(settings={**AS_PLANNED, "rows": []}), _under()),
    ("other-settings", _under(settings={**AS_PLANNED, "keep_self": True}), _under()),
    ("other-settings", _under(settings={**AS_PLANNED, "control_seed": 7}), _under()),
    ("other-settings", _under(replace(PLANNED, settings={**PLANNED.settings, "pretrained": "other/model"})), _under()),
    # beta is for steering: a masking run under the same plan has none
    (
        "other-settings",
        _under(settings={**AS_PLANNED, "phase": "prefill"}),
        _under(replace(PLANNED, settings={**PLANNED.settings, "beta": 3}), settings={**AS_PLANNED, "beta": []}),
    ),
    ("other-k", _under(replace(PLANNED, k=4)), _under()),
    (
        "other-k",
        _under(replace(PLANNED, k=None, settings={**PLANNED.settings, "top_k": "2+4"})),
        _under(replace(PLANNED, k=None, settings={**PLANNED.settings, "top_k": f"4+{CLEAN.k}"})),
    ),
    ("unplanned", _under(replace(PLANNED, sets=("tiny-digits/b",))), _under()),
    ("unplanned", _under(task="ncs_other"), _under()),
    ("left-out", _under(replace(PLANNED, tasks=("ncs_digits", "cers_digits"))), _under()),
    ("left-out", _under(replace(PLANNED, sets=("tiny-digits/a", "tiny-digits/b"))), _under()),
]


@pytest.mark.parametrize(("rule", "bad", "good"), TWINS, ids=[name for name, *_ in TWINS])
def test_rule_trips_and_its_clean_twin_does_not(rule: str, bad: Build, good: Build, tmp_path: Path) -> None:
    assert rule in {f.rule for f in findings(bad(tmp_path / "bad"))}
    assert rule not in {f.rule for f in findings(good(tmp_path / "good"))}


def test_every_rule_has_a_tripping_test_and_a_clean_twin() -> None:
    """A new rule without both fails here."""
    assert sorted({name for name, *_ in TWINS}) == sorted(rule.name for rule in RULES)


def test_a_clean_run_trips_nothing(tmp_path: Path) -> None:
    found = findings(analysis_of([syn.write_ncs(tmp_path, CLEAN)]))
    assert [f.rule for f in found] == []


@pytest.mark.parametrize(("stopping", "name", "tripped"), [("two-stage", "a", True), ("two-stage", "b", False)])
def test_a_first_stage_may_only_end_with_an_exceedance(tmp_path: Path, stopping: str, name: str, tripped: bool) -> None:
    """20 draws of a planned 250: right for a set that some control reaches, wrong for one above them all."""
    plan = Plan(claims=(Claim("necessity", name, "ncs_digits"),), r=250, first=20, stopping=stopping, m=4)
    world = replace(CLEAN, controls=20, effects={"a": 0.4, "b": 0.0}, plan=plan.digest)
    found = findings(analysis_of([syn.write_ncs(tmp_path, world)], plan))
    assert any(f.rule == "r-after-looking" and f"digits/{name}," in f.where for f in found) is tripped
    # the floor of a stage that an exceedance ended is that of all planned draws
    assert any(f.rule == "floor-above-alpha" and f"digits/{name}," in f.where for f in found) is tripped


def test_a_planned_scan_tuned_elsewhere_is_no_pitfall(tmp_path: Path) -> None:
    world = replace(CLEAN, rows=(("all",), ("question",)), controls=79)
    for tuned_on, tripped in (("choose", False), ("evaluate", True)):
        plan = Plan(claims=(Claim("necessity", "a", "ncs_digits", condition="mask:image"),), r=79, tuned_on=tuned_on)
        folder = syn.write_ncs(tmp_path / tuned_on, replace(world, plan=plan.digest))
        assert ("tuned-on-evaluation" in {f.rule for f in findings(analysis_of([folder], plan))}) is tripped


@pytest.mark.parametrize("change", [{"n_planned": 200}, {"settings": {**AS_PLANNED, "rows": []}}])
def test_a_run_that_left_its_plan_carries_no_claim(tmp_path: Path, change: dict[str, Any]) -> None:
    for folder, build in (("good", _under()), ("bad", _under(**change))):
        a = build(tmp_path / folder)
        (verdict,) = judge(a, findings(a))
        assert verdict.carried is (folder == "good"), verdict.reasons


def test_the_committed_reports_follow_their_plans() -> None:
    for path in (REPORTS / "report.json", REPORTS / "grid" / "report.json"):
        a = analyse(read_report(path), 40)
        assert {f.rule for f in findings(a)} & {
            "fewer-items",
            "other-settings",
            "other-k",
            "unplanned",
            "left-out",
        } == set()


def test_an_exploratory_run_has_no_plan_to_leave(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path, replace(CLEAN, settings=AS_PLANNED, n_planned=200))
    found = {f.rule for f in findings(analysis_of([folder], PLANNED))}
    assert found & {"fewer-items", "other-settings", "other-k", "unplanned", "left-out"} == set()
