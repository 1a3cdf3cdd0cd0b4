"""``harness-heads run``: the commands of a plan, and a fan of stock runs that carries the plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness_heads.cli.main import main
from harness_heads.cli.run import declare_fans, steps
from harness_heads.errors import HarnessHeadsError
from harness_heads.head_sets import resolve
from harness_heads.protocol.analysis import analyse
from harness_heads.protocol.claims import judge
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.plan import Claim, Plan
from harness_heads.protocol.rules import findings

SET = "tiny-digits/dg-ref-qsp"
PLAN = Plan(
    claims=(Claim("necessity", SET, "mmstar"),),
    settings={"pretrained": "tiny-digits", "host": "qwen3vl"},
    sets=(SET,),
    tasks=("ncs_digits", "mmstar"),
    r=19,
)


def planned(folder: Path, plan: Plan = PLAN) -> list[Path]:
    """The fan's run folders, as ``run`` lays them out before its first command."""
    plan.save(folder / "plan.json")
    todo = list(steps(plan, folder / "plan.json", folder))
    declare_fans(todo, plan, folder)
    return [folder / s.folder for s in todo if s.folder.startswith("stock/")]


def answer(folder: Path, scores: list[int], task: str = "mmstar") -> None:
    """What lmms-eval leaves of one stock run."""
    lines = [json.dumps({"doc_id": i, "target": "A", "exact_match": score}) for i, score in enumerate(scores)]
    (folder / "m").mkdir(parents=True)
    (folder / "m" / f"20261201_samples_{task}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_own_tasks_run_once_and_stock_tasks_once_a_set(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.json")
    made = list(steps(PLAN, tmp_path / "plan.json", tmp_path))
    assert [s.folder.split("/")[0] for s in made] == ["mask"] + ["stock"] * 21
    words = made[0].command(tmp_path)
    assert words[words.index("--tasks") + 1] == "ncs_digits" and "--limit" not in words
    assert f"head_set={SET}" in words[3] and "controls=19" in words[3] and "plan=" in words[3]
    fan = made[1:]
    assert [Path(s.folder).name for s in fan] == ["untouched", "set", *(f"layer-{i}" for i in range(19))]
    assert all(s.tasks == ("mmstar",) and s.model_args["controls"] == 0 for s in fan)
    assert [s.heads is not None and len(s.heads) for s in fan] == [0] + [8] * 20
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]  # steps are said, nothing is written
    declare_fans(made, PLAN, tmp_path)
    assert fan[0].model_args["head_set"] == "none"
    assert all(Path(str(s.model_args["head_set"])).is_file() for s in fan[1:])


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PLAN.save(tmp_path / "plan.json")
    assert main(["run", str(tmp_path / "plan.json"), "-o", str(tmp_path / "out"), "--dry-run"]) == 0
    assert capsys.readouterr().out.count("lmms_eval --model") == 22
    assert not (tmp_path / "out").exists()


def test_a_fan_carries_its_plan_and_a_claim_about_it(tmp_path: Path) -> None:
    folders = planned(tmp_path)
    for folder in folders:
        answer(folder, [0, 0, 0, 0, 1, 0, 0, 1] if folder.name == "set" else [1, 1, 1, 1, 1, 1, 0, 1])
    a = analyse(load_evidence(folders), 40)
    assert not a.evidence.exploratory
    (test,) = a.tests
    assert (test.confirmatory, test.m, test.p) == (True, 1, pytest.approx(1 / 20))
    (verdict,) = judge(a, findings(a))
    assert verdict.carried, verdict.reasons


def test_a_fan_that_declares_no_plan_carries_no_claim(tmp_path: Path) -> None:
    folders = planned(tmp_path)
    for folder in folders:
        answer(folder, [0, 0, 0, 1] if folder.name == "set" else [1, 1, 1, 1])
    (folders[0].parent / "fan.json").unlink()
    a = analyse(load_evidence(folders, tmp_path / "plan.json"), 40)
    assert a.evidence.exploratory and not a.tests[0].confirmatory
    (verdict,) = judge(a, findings(a))
    assert not verdict.carried and "not started with this plan" in verdict.reasons[0]


def test_a_run_that_was_never_started_is_missing(tmp_path: Path) -> None:
    """Neither its folder nor its name is among those given: the declaration knows it."""
    folders = planned(tmp_path)
    for folder in folders[:-1]:
        answer(folder, [1, 0])
    (folders[-1] / "head_set.json").unlink()
    with pytest.raises(HarnessHeadsError, match=r"run under layer-18 has no samples \(1 missing\)"):
        load_evidence(folders[:-1])


def test_a_declared_task_that_no_run_answered(tmp_path: Path) -> None:
    folders = planned(tmp_path)
    for folder in folders:
        answer(folder, [1, 0], "mme")
    with pytest.raises(HarnessHeadsError, match="no run answered task mmstar"):
        load_evidence(folders)


def test_a_declaration_of_another_plan(tmp_path: Path) -> None:
    folders = planned(tmp_path)
    for folder in folders:
        answer(folder, [1, 0])
    Plan(m=3).save(tmp_path / "other.json")
    with pytest.raises(HarnessHeadsError, match="were started with plan"):
        load_evidence(folders, tmp_path / "other.json")


def test_a_declaration_that_cannot_be_read(tmp_path: Path) -> None:
    folders = planned(tmp_path)
    for folder in folders:
        answer(folder, [1, 0])
    (folders[0].parent / "fan.json").write_text("{")
    with pytest.raises(HarnessHeadsError, match=r"fan\.json is not JSON"):
        load_evidence(folders)


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        (Plan(sets=(SET,)), "must name tasks and sets"),
        (Plan(sets=(SET,), tasks=("mmstar",), settings={"op": "burn"}), "is no operation"),
    ],
)
def test_plans_that_cannot_be_run(tmp_path: Path, plan: Plan, match: str) -> None:
    with pytest.raises(HarnessHeadsError, match=match):
        list(steps(plan, tmp_path / "plan.json", tmp_path))


def limits(plan: Plan, folder: Path) -> dict[str, tuple[str, ...]]:
    """Tasks of every command, with its last two words."""
    return {s.folder: (*s.tasks, *s.command(folder)[-2:]) for s in steps(plan, folder / "plan.json", folder)}


def test_the_plans_n_is_how_many_items_are_answered(tmp_path: Path) -> None:
    made = limits(replace(PLAN, n=40, r=1), tmp_path)
    assert made["mask"] == ("ncs_digits", "--limit", "40")
    assert [words for name, words in made.items() if name.startswith("stock/")] == [("mmstar", "--limit", "40")] * 3


def test_a_limit_in_the_settings_goes_before_n(tmp_path: Path) -> None:
    plan = replace(PLAN, n=40, tasks=("ncs_digits",), settings={**PLAN.settings, "limit": 8})
    assert limits(plan, tmp_path) == {"mask": ("ncs_digits", "--limit", "8")}


def test_an_audited_task_answers_all_its_candidates(tmp_path: Path) -> None:
    plan = replace(PLAN, n=120, tasks=("ncs_digits", "ncs_grid_digits"))
    made = limits(plan, tmp_path)
    assert made["mask-120"] == ("ncs_digits", "--limit", "120")
    assert made["mask-all"][0] == "ncs_grid_digits" and "--limit" not in made["mask-all"]
    assert list(limits(replace(plan, tasks=("ncs_grid_digits",)), tmp_path)) == ["mask"]


def test_a_fan_knows_the_name_that_the_plan_gives_its_set(tmp_path: Path) -> None:
    """A set found by ``discover`` is named by its folder: a claim about that folder is about the set."""
    path = tmp_path / "mine.json"
    resolve(SET).save(path)
    plan = replace(PLAN, sets=(str(path),), tasks=("mmstar",), claims=(Claim("necessity", str(path), "mmstar"),))
    folders = planned(tmp_path / "out", plan)
    for folder in folders:
        answer(folder, [0, 0, 0, 0] if folder.name == "set" else [1, 1, 0, 1])
    a = analyse(load_evidence([tmp_path / "out"]), 40)
    assert [f.rule for f in findings(a) if f.rule in ("unplanned", "left-out")] == []
    assert a.tests[0].confirmatory


def test_a_fan_of_fewer_items_than_planned_is_seen(tmp_path: Path) -> None:
    plan = replace(PLAN, n=8, tasks=("mmstar",))
    folders = planned(tmp_path, plan)
    for folder in folders:
        answer(folder, [0, 0, 1, 0] if folder.name == "set" else [1, 1, 1, 1])
    assert "fewer-items" not in {f.rule for f in findings(analyse(load_evidence([tmp_path]), 40))}
    results = next(folders[1].rglob("*.jsonl")).with_name("20261201_results.json")
    results.write_text(json.dumps({"n-samples": {"mmstar": {"original": 1500, "effective": 4}}}), encoding="utf-8")
    assert "fewer-items" in {f.rule for f in findings(analyse(load_evidence([tmp_path]), 40))}


def test_settings_go_to_the_operation_that_reads_them(tmp_path: Path) -> None:
    named = {**PLAN.settings, "beta": 3, "keep_self": True, "rows": "question"}
    plan = replace(PLAN, tasks=("ncs_digits", "cers_digits"), settings=named)
    made = {s.folder: s.model_args for s in steps(plan, tmp_path / "plan.json", tmp_path)}
    assert {name: "beta" in args for name, args in made.items()} == {"mask": False, "steer": True}
    assert {name: "keep_self" in args for name, args in made.items()} == {"mask": True, "steer": False}
    assert all(args["rows"] == "question" for args in made.values())
