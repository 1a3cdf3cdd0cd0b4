"""Plans and claims: everything wrong at once, digests, cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.plan import Claim, Plan, load_plan, plan_from_dict
from harness_heads.protocol.planning import Expectation, draft, plan_text

PLAN = Plan(
    claims=(
        Claim("necessity", "tiny-digits/a", "ncs_digits"),
        Claim("null", "tiny-digits/b", "ncs_digits", margin=0.02),
    ),
    sets=("tiny-digits/a", "tiny-digits/b"),
    tasks=("ncs_digits",),
    k=8,
    n=200,
    r=250,
    declared={"17": "samples are in the repository"},
)


def test_round_trip_and_digest(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.json")
    back = load_plan(tmp_path / "plan.json")
    assert back == PLAN
    assert back.digest == PLAN.digest
    reordered = json.dumps(dict(reversed(list(PLAN.to_dict().items()))), indent=7)
    assert plan_from_dict(json.loads(reordered), "x").digest == PLAN.digest


@pytest.mark.parametrize("change", [{"r": 251}, {"m": 3}, {"alpha": 0.01}, {"claims": PLAN.claims[:1]}])
def test_any_change_changes_the_digest(change: dict[str, object]) -> None:
    assert replace(PLAN, **change).digest != PLAN.digest  # type: ignore[arg-type]


def test_all_problems_are_told_at_once() -> None:
    value = {"schema": 1, "alpha": 5, "r": 0, "stopping": "fixd", "claims": [{"kind": "null", "set": "a", "task": "t"}]}
    with pytest.raises(HarnessHeadsError) as caught:
        plan_from_dict(value, "plan.json")
    text = str(caught.value)
    for part in ("alpha=5", "r=0", "did you mean 'fixed'", "needs a margin"):
        assert part in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ([], "JSON object"),
        ({"schema": 2}, "schema 2"),
        ({"schema": 1, "alhpa": 0.1}, "did you mean 'alpha'"),
        ({"schema": 1, "claims": {}}, "must be a list"),
        ({"schema": 1, "claims": [3]}, "no JSON object"),
        ({"schema": 1, "claims": [{"kind": "necessity", "set": "a"}]}, "needs 'task'"),
        ({"schema": 1, "claims": [{"kind": "necesity", "set": "a", "task": "t"}]}, "did you mean 'necessity'"),
        ({"schema": 1, "claims": [{"kind": "difference", "set": "a", "task": "t"}]}, "needs 'versus'"),
        ({"schema": 1, "claims": [{"kind": "necessity", "set": "a", "task": "t", "setting": 1}]}, "no field 'setting'"),
        ({"schema": 1, "sets": "a"}, "list of names"),
        ({"schema": 1, "m": 1, "claims": [{"kind": "necessity", "set": s, "task": "t"} for s in "ab"]}, "m=1 tests"),
    ],
)
def test_plans_that_cannot_be(value: object, match: str) -> None:
    with pytest.raises(HarnessHeadsError, match=match):
        plan_from_dict(value, "plan.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="does not exist"):
        load_plan(tmp_path / "absent.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(HarnessHeadsError, match="is not JSON"):
        load_plan(tmp_path / "bad.json")


def _draft(**changes: object) -> Plan:
    values: dict[str, object] = {
        "claims": ["necessity:tiny-digits/a:ncs_digits:0.1", "null:tiny-digits/b:ncs_digits:0.02"],
        "differences": [], "pretrained": "tiny-digits", "k": 8, "n": 200, "r": None, "m": None, "alpha": 0.05,
        "tails": "upper", "families": ("layer",), "stopping": "fixed", "negative_controls": ("tiny-digits/b",),
        "tuned_on": "choose", "declared": ["17=released"],
    }  # fmt: skip
    return draft(**{**values, **changes})  # type: ignore[arg-type]


def test_controls_follow_from_alpha_and_m() -> None:
    assert (_draft().m, _draft().r) == (1, 39)
    assert _draft(m=12).r == 479
    assert _draft(r=250).r == 250


def test_a_difference_brings_both_sets() -> None:
    plan = _draft(claims=[], differences=["tiny-digits/a:tiny-digits/c:ncs_digits"])
    assert plan.sets == ("tiny-digits/a", "tiny-digits/c", "tiny-digits/b")
    assert plan.claims[0].versus == "tiny-digits/c"


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": ["necessity:a"]},
        {"claims": ["necessity:a:t:much"]},
        {"declared": ["3=no"]},
        {"claims": ["proof:a:t"]},
    ],
)
def test_choices_that_cannot_be_read(changes: dict[str, object]) -> None:
    with pytest.raises(HarnessHeadsError):
        _draft(**changes)


def test_cost_counts_items_conditions_and_sets() -> None:
    """200 items, arms x (1 baseline + 2 sets + 2 x 39 controls) = 81 sets, 3 arm conditions."""
    text = plan_text(_draft(), Expectation(conditions=2, seconds=0.01))
    assert "800 prompts" in text
    assert f"{200 * 3 * 81 * 2} answers" in text
    assert f"about {200 * 3 * 81 * 2 * 0.01 / 3600:.1f} hours" in text


def test_a_plan_that_can_show_nothing_says_so() -> None:
    assert "cannot show anything" in plan_text(_draft(r=20, m=12), Expectation())
