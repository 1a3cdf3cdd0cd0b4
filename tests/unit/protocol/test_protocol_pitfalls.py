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
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.plan import Claim, Plan
from harness_heads.protocol.rules import RULES, findings

CLEAN = syn.World(items=16, controls=39, effects={"a": 0.3}, control_mass=0.19)
Write = Callable[[Path, syn.World], Path]


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


SMALL = Geometry((4,) * 8)
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
    Case("could-not-act", replace(CLEAN, mass_after=0.19, set_mass=0.19), replace(CLEAN, mass_after=0.02)),
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


def _find(case: Case, folder: Path, world: syn.World, edit: object) -> set[str]:
    if case.rule == "could-not-act":
        # the synthetic dose moves a little with the item; a mask that did nothing leaves each item's mass as it was
        edit = _still if world is case.bad else None
    return {f.rule for f in findings(analysis_of([case.write(folder, world, edit=edit)]))}


def _still(records: list[dict[str, Any]]) -> None:
    for record in records:
        for arm in record["arms"].values():
            for cell in (arm.get("dose") or {}).values():
                for dose in cell.values():
                    dose["after"] = dose["before"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.rule)
def test_rule_trips_and_its_clean_twin_does_not(case: Case, tmp_path: Path) -> None:
    assert case.rule in _find(case, tmp_path / "bad", case.bad, case.edit)
    assert case.rule not in _find(case, tmp_path / "good", case.good, None)


def test_a_clean_run_trips_nothing(tmp_path: Path) -> None:
    found = findings(analysis_of([syn.write_ncs(tmp_path, CLEAN)]))
    assert [f.rule for f in found] == []


def test_every_rule_has_a_case() -> None:
    elsewhere = {"r-after-looking", "repeated-controls", "unmatched-dose", "mass-explains-score"}
    assert {case.rule for case in CASES} | elsewhere == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_more_controls_for_winners_alone(tmp_path: Path) -> None:
    a = syn.write_ncs(tmp_path / "a", replace(CLEAN, controls=79))
    b = syn.write_ncs(tmp_path / "b", replace(CLEAN, controls=120, effects={"b": 0.4}), "ncs_other")
    assert "r-after-looking" in {f.rule for f in findings(analysis_of([a, b]))}
    c = syn.write_ncs(tmp_path / "c", replace(CLEAN, controls=79, effects={"b": 0.4}), "ncs_other")
    assert "r-after-looking" not in {f.rule for f in findings(analysis_of([a, c]))}


@pytest.mark.parametrize(("r", "tripped"), [(250, True), (39, False)])
def test_r_other_than_planned(tmp_path: Path, r: int, tripped: bool) -> None:
    plan = Plan(claims=(Claim("necessity", "a", "ncs_digits"),), r=r)
    folder = syn.write_ncs(tmp_path, replace(CLEAN, plan=plan.digest))
    assert ("r-after-looking" in {f.rule for f in findings(analysis_of([folder], plan))}) is tripped


@pytest.mark.parametrize(("stopping", "name", "tripped"), [("two-stage", "a", True), ("two-stage", "b", False)])
def test_a_first_stage_may_only_end_with_an_exceedance(tmp_path: Path, stopping: str, name: str, tripped: bool) -> None:
    """20 draws of a planned 250: right for a set that some control reaches, wrong for one above them all."""
    plan = Plan(claims=(Claim("necessity", name, "ncs_digits"),), r=250, first=20, stopping=stopping)
    world = replace(CLEAN, controls=20, effects={"a": 0.4, "b": 0.0}, plan=plan.digest)
    found = findings(analysis_of([syn.write_ncs(tmp_path, world)], plan))
    assert any(f.rule == "r-after-looking" and f"digits/{name}," in f.where for f in found) is tripped


def test_a_planned_scan_tuned_elsewhere_is_no_pitfall(tmp_path: Path) -> None:
    world = replace(CLEAN, rows=(("all",), ("question",)), controls=79)
    for tuned_on, tripped in (("choose", False), ("evaluate", True)):
        plan = Plan(claims=(Claim("necessity", "a", "ncs_digits", condition="mask:image"),), r=79, tuned_on=tuned_on)
        folder = syn.write_ncs(tmp_path / tuned_on, replace(world, plan=plan.digest))
        assert ("tuned-on-evaluation" in {f.rule for f in findings(analysis_of([folder], plan))}) is tripped


def test_few_different_control_sets(tmp_path: Path) -> None:
    """Two heads of one four-head layer: six possible sets for 39 draws."""
    tiny = Geometry((4, 0, 0, 0))  # key/value heads unknown
    narrow = replace(CLEAN, geometry=tiny, k=2, facts=False)
    assert "repeated-controls" in {f.rule for f in findings(analysis_of([syn.write_ncs(tmp_path, narrow)]))}


def test_controls_steered_less_far(tmp_path: Path) -> None:
    def weaker(records: list[dict[str, Any]]) -> None:
        own = next(e.key for e in syn.table(CLEAN) if e.role == "discovered")
        for record in records:
            for cell in record["arms"]["grid"]["dose"].values():
                for key, dose in cell.items():
                    dose["after"] = 0.9 if key == own else 0.4

    folder = syn.write_cers(tmp_path / "a", CLEAN, edit=weaker)
    assert "unmatched-dose" in {f.rule for f in findings(analysis_of([folder]))}
    assert "unmatched-dose" not in {f.rule for f in findings(analysis_of([syn.write_cers(tmp_path / "b", CLEAN)]))}


def test_score_that_follows_mass(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path, replace(CLEAN, control_sd=0.1))
    analysis = analysis_of([folder])
    controls = analysis.tests[0].effect.controls
    keys = [e.key for e in syn.table(CLEAN) if e.role == "control"]
    mass = dict(zip(keys, controls, strict=True))

    def follow(records: list[dict[str, Any]]) -> None:
        for record in records:
            for arm in ("matched", "mismatched"):
                for key, dose in record["arms"][arm]["dose"]["mask:image"].items():
                    dose["before"] = 0.5 + mass.get(key, 0.0)

    tied = syn.write_ncs(tmp_path / "tied", replace(CLEAN, control_sd=0.1), edit=follow)
    assert "mass-explains-score" in {f.rule for f in findings(analysis_of([tied]))}
    assert "mass-explains-score" not in {f.rule for f in findings(analysis)}
