"""Claims judged and the checklist evaluated, each in its three states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.analysis import Analysis, analyse
from harness_heads.protocol.checklist import MISSING, NOT_APPLICABLE, REPORTED, checklist, counts
from harness_heads.protocol.claims import Verdict, judge
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.layout import Sentence
from harness_heads.protocol.opening import sentences
from harness_heads.protocol.plan import Claim, Plan
from harness_heads.protocol.rules import findings

WORLD = syn.World(items=24, controls=39, control_mass=0.19)
NECESSITY = Claim("necessity", "dg-ref-qsp", "ncs_digits", margin=0.1)
NULL = Claim("null", "tiny-digits/dg-ord-last", "ncs_digits", margin=0.05)


def analysed(tmp_path: Path, plan: Plan, world: syn.World = WORLD, **kwargs: Any) -> Analysis:
    folder = syn.write_ncs(tmp_path, replace(world, plan=plan.digest), run_json={"plan": plan.to_dict()}, **kwargs)
    return analyse(load_evidence([folder]), 400)


def verdicts(tmp_path: Path, plan: Plan, world: syn.World = WORLD, **kwargs: Any) -> tuple[Verdict, ...]:
    a = analysed(tmp_path, plan, world, **kwargs)
    return judge(a, findings(a))


def test_claims_that_are_carried(tmp_path: Path) -> None:
    difference = Claim("difference", "dg-ref-qsp", "ncs_digits", versus="dg-ord-last")
    found = verdicts(tmp_path, Plan(claims=(NECESSITY, NULL, difference), r=39))
    assert [v.carried for v in found] == [True, True, True], [v.reasons for v in found]
    assert "carried" in found[0].sentence


def test_a_planned_test_is_adjusted_over_the_plans_m(tmp_path: Path) -> None:
    a = analysed(tmp_path, Plan(claims=(NECESSITY,), r=39))
    by_name = {t.effect.name.split("/")[1]: t for t in a.tests}
    planned, other = by_name["dg-ref-qsp"], by_name["dg-ord-last"]
    assert planned.confirmatory and planned.m == 1
    assert planned.holm == pytest.approx(1 / 40)
    assert not other.confirmatory and other.m == 2


@pytest.mark.parametrize(
    ("claim", "world", "why"),
    [
        (NECESSITY, replace(WORLD, effects={"dg-ref-qsp": 0.0}), "does not lie above 0"),
        (replace(NECESSITY, margin=0.9), WORLD, "below the margin"),
        (NECESSITY, replace(WORLD, mismatched=0.5), "audit-out-of-range"),
        (NECESSITY, replace(WORLD, control_k=5), "fewer-control-heads"),
        (replace(NECESSITY, set="dg-ref-out"), WORLD, "no test of this set"),
        (replace(NECESSITY, family="any"), WORLD, "no test of this set"),
        (replace(NECESSITY, task="ncs_imagenet"), WORLD, "no test of this set"),
        (replace(NECESSITY, kind="steerability"), WORLD, "no test of this set"),
        (replace(NULL, set="dg-ref-qsp"), WORLD, "is not inside"),
        (replace(NULL, margin=0.0001), WORLD, "is not inside"),
        (Claim("difference", "dg-ord-last", "ncs_digits", versus="dg-ref-qsp"), WORLD, "paired p"),
        (Claim("difference", "dg-ord-last", "ncs_digits", versus="nobody"), WORLD, "one is needed"),
    ],
)
def test_claims_that_are_not(tmp_path: Path, claim: Claim, world: syn.World, why: str) -> None:
    (found,) = verdicts(tmp_path, Plan(claims=(claim,), r=39), world)
    assert not found.carried
    assert any(why in reason for reason in found.reasons), found.reasons
    assert "NOT carried" in found.sentence


SILENT = replace(NULL, kind="silent")


@pytest.mark.parametrize(
    ("claim", "world", "carried"),
    [
        (SILENT, WORLD, True),  # near 0, and among its controls
        (replace(SILENT, margin=0.0001), WORLD, True),  # among its controls alone
        (replace(SILENT, set="dg-ref-qsp", margin=0.9), WORLD, True),  # far above its controls, below the margin
        (replace(SILENT, set="dg-ref-qsp"), WORLD, False),
        (SILENT, replace(WORLD, control_k=5), False),  # no verdict from broken controls
        (SILENT, replace(WORLD, controls=5), True),  # few controls make silence cheap, and the sentence says so
    ],
)
def test_a_negative_control_is_small_or_among_its_controls(
    tmp_path: Path, claim: Claim, world: syn.World, carried: bool
) -> None:
    """The criterion "|score| < margin or p > alpha" is a claim of its own, told apart from equivalence by TOST."""
    (found,) = verdicts(tmp_path, Plan(claims=(claim,), r=world.controls), world)
    assert found.carried is carried, found.reasons
    assert "absence is not shown by that" in found.sentence
    assert not carried or "TOST p" in found.numbers


def test_too_few_controls_carry_no_claim(tmp_path: Path) -> None:
    (found,) = verdicts(tmp_path, Plan(claims=(NECESSITY,), r=39, m=12))
    assert any("Holm p" in reason for reason in found.reasons)


def test_an_ambiguous_claim_must_name_its_condition(tmp_path: Path) -> None:
    world = replace(WORLD, rows=(("all",), ("image",)))
    plan = Plan(claims=(NECESSITY, replace(NECESSITY, condition="mask:image")), r=39, m=2, tuned_on="choose")
    vague, exact = verdicts(tmp_path, plan, world)
    assert any("must name its condition" in reason for reason in vague.reasons)
    assert exact.carried, exact.reasons


def test_two_stage_rule_uses_the_draws_it_needs(tmp_path: Path) -> None:
    world = replace(WORLD, effects={"dg-ref-qsp": 0.4, "dg-ord-last": 0.0})
    a = analysed(tmp_path, Plan(claims=(NECESSITY,), r=39, stopping="two-stage", first=20), world)
    by_name = {t.effect.name.split("/")[1]: t for t in a.tests}
    assert by_name["dg-ref-qsp"].draws == 39
    assert by_name["dg-ord-last"].draws == 20
    assert by_name["dg-ord-last"].p == pytest.approx(
        (1 + sum(c >= by_name["dg-ord-last"].effect.mean - 1e-6 for c in by_name["dg-ord-last"].effect.controls[:20]))
        / 21
    )


def test_a_plan_that_the_run_does_not_carry(tmp_path: Path) -> None:
    plan = Plan(claims=(NECESSITY,))
    evidence = replace(load_evidence([syn.write_ncs(tmp_path, WORLD)]), plan=plan)
    a = analyse(evidence, 40)
    (found,) = judge(a, findings(a))
    assert not found.carried
    assert "not started with this plan" in found.reasons[0]


def test_no_plan_no_claims(tmp_path: Path) -> None:
    a = analyse(load_evidence([syn.write_ncs(tmp_path, WORLD)]), 40)
    assert judge(a, findings(a)) == ()


# --- checklist ----------------------------------------------------------------------------------------------------
def items_of(a: Analysis) -> dict[int, tuple[str, str]]:
    return {i.number: (i.status, i.text) for i in checklist(a, findings(a))}


def _both(tmp_path: Path, world: syn.World, plan: Plan | None = None) -> Analysis:
    world = world if plan is None else replace(world, plan=plan.digest)
    kwargs: dict[str, Any] = {} if plan is None else {"run_json": {"plan": plan.to_dict()}}
    folders = [syn.write_ncs(tmp_path / "a", world, **kwargs), syn.write_cers(tmp_path / "b", world, **kwargs)]
    return analyse(load_evidence(folders), 40)


def test_nineteen_items_each_with_one_status(tmp_path: Path) -> None:
    items = checklist(_both(tmp_path, WORLD), ())
    assert [i.number for i in items] == list(range(1, 20))
    assert sum(counts(items).values()) == 19
    assert all(i.text for i in items)


def test_a_full_run_reports_nearly_everything(tmp_path: Path) -> None:
    plan = Plan(
        claims=(Claim("necessity", "a", "ncs_digits", condition="mask:image"),),
        r=39,
        m=1,
        declared={"17": "released", "19": "all about items"},
        tuned_on="choose",
    )
    world = replace(
        WORLD,
        effects={"a": 0.4},
        families=("layer", "attention", "any"),
        damage=True,
        rows=(("all",), ("question",)),
        betas=(1.0, "hard"),
    )
    found = items_of(_both(tmp_path, world, plan))
    missing = {n for n, (status, _) in found.items() if status == MISSING}
    # a ceiling needs a discovery folder, a k sweep more sets, a second model its own run, exploratory tests more R
    assert missing == {5, 10, 15, 18}
    assert "declared in the plan" in found[17][1]
    assert "choose" in found[7][1]


@pytest.mark.parametrize(
    ("number", "good", "bad"),
    [
        (1, WORLD, replace(WORLD, run={"model": {"id": "tiny-digits", "geometry": {"heads": [16] * 8}}})),
        (2, WORLD, replace(WORLD, discovery={k: None for k in ("setting", "query", "corpus", "strips")})),
        (3, WORLD, replace(WORLD, discovery={k: None for k in ("setting", "rows", "normalisation", "ties")})),
        (6, WORLD, None),
        (7, WORLD, replace(WORLD, discovery={"images": None, "split": None})),
        (12, WORLD, replace(WORLD, controls=1)),
        (11, WORLD, replace(WORLD, controls=0)),
        (13, WORLD, replace(WORLD, controls=1)),
        (14, replace(WORLD, damage=True), WORLD),
        (16, replace(WORLD, rows=(("all",), ("last",))), WORLD),
    ],
)
def test_items_are_reported_or_missing(tmp_path: Path, number: int, good: syn.World, bad: syn.World | None) -> None:
    assert items_of(_both(tmp_path / "good", good))[number][0] == REPORTED
    if bad is not None:
        assert items_of(_both(tmp_path / "bad", bad))[number][0] == MISSING


def test_steering_alone_has_no_row_groups(tmp_path: Path) -> None:
    a = analyse(load_evidence([syn.write_cers(tmp_path, WORLD)]), 40)
    assert items_of(a)[16][0] == NOT_APPLICABLE
    assert items_of(a)[9] == (MISSING, "2 set(s) without necessity, first tiny-digits/dg-ord-last")


def test_published_sets_have_no_ceiling_to_report(tmp_path: Path) -> None:
    world = replace(WORLD, discovery={"kind": "published"})
    assert items_of(_both(tmp_path, world))[5][0] == NOT_APPLICABLE


def test_discovery_folders_bring_the_ceiling(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD)
    extra = syn.write_discoveries(tmp_path / "d", WORLD)
    a = analyse(load_evidence([folder, *extra]), 40)
    assert items_of(a)[5][0] == REPORTED
    (pair,) = a.evidence.discovery[0]["overlaps"]
    # both settings score the same planted heads high in every sample: halves agree with themselves and with each other
    assert pair["self_a"] == pair["self_b"] == 8
    assert pair["overlap"] == len(set(syn.discovered(WORLD)[0].heads) & set(syn.discovered(WORLD)[1].heads))
    assert load_evidence([*extra[::-1], folder]).digest == a.evidence.digest


def test_discovery_folders_alone_are_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="no evidence"):
        load_evidence(syn.write_discoveries(tmp_path, WORLD))


def opening_and_verdict(folder: Path, plan: Plan, **changes: Any) -> tuple[Sentence, Verdict]:
    """The report's sentence on ``a`` and its claim's verdict, from the same evidence."""
    world = syn.World(items=16, controls=39, control_mass=0.19, effects={"a": 0.3}, plan=plan.digest)
    a = analyse(replace(load_evidence([syn.write_ncs(folder, replace(world, **changes))]), plan=plan), 40)
    found = findings(a)
    (sentence,) = sentences(a, found)
    (verdict,) = judge(a, found)
    return sentence, verdict


@pytest.mark.parametrize(
    ("changes", "margin", "why"),
    [
        ({}, None, ""),
        ({}, 0.1, ""),
        ({}, 0.6, "below the margin 0.6"),
        ({"effects": {"a": 0.01}, "control_sd": 0.0}, None, "does not lie above 0"),
        ({"mismatched": 0.42}, None, "audit-out-of-range"),
        ({"control_k": 5}, None, "fewer-control-heads"),
    ],
    ids=["clean", "margin", "too little", "interval", "audit", "small controls"],
)
def test_the_opening_grants_what_a_claim_would_be_granted(
    tmp_path: Path, changes: dict[str, Any], margin: float | None, why: str
) -> None:
    """Every one of these lies above all 39 controls; only those that the verdict carries are called necessary."""
    plan = Plan(claims=(Claim("necessity", "a", "ncs_digits", margin=margin),), r=39)
    sentence, verdict = opening_and_verdict(tmp_path, plan, **changes)
    assert "Holm p = 0.025" in sentence.text
    assert verdict.carried is (not why)
    assert ("it is necessary" in sentence.text, sentence.mood == "good") == (verdict.carried, verdict.carried)
    if why:
        assert why in sentence.text and "nothing is shown" in sentence.text


def test_a_claim_may_name_a_set_as_the_run_did(tmp_path: Path) -> None:
    """By the folder that ``discover`` left it in, as well as by its own name."""
    folder, (heads, _) = "reports/runs/discover-x/dg-ref-qsp", syn.discovered(WORLD)
    for spec, known in ((folder, True), ("reports/runs/discover-y/dg-ref-qsp", False)):
        plan = Plan(claims=(Claim("necessity", spec, "ncs_digits"),), r=39, sets=(spec,))
        world = replace(WORLD, settings={"head_set": [f"{folder}@{heads.identity[:12]}"]})
        a = analysed(tmp_path / str(known), plan, world)
        (verdict,) = judge(a, findings(a))
        assert verdict.carried is known, verdict.reasons
