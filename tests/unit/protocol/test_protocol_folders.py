"""What a path may hold: folders of ``run`` and of ``discover``, tasks of lmms-eval's own beside ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic as syn

from harness_heads.cli.main import main
from harness_heads.protocol.analysis import analyse
from harness_heads.protocol.claims import judge
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.folders import look
from harness_heads.protocol.plan import Claim, Plan
from harness_heads.protocol.rules import findings

WORLD = syn.World(items=12, controls=39, control_mass=0.19)
PLAN = Plan(claims=(Claim("necessity", "dg-ref-qsp", "ncs_digits"), Claim("silent", "dg-ord-last", "cers_digits",
            margin=0.1)), r=39)  # fmt: skip


def planned(out: Path, plan: Plan = PLAN) -> Path:
    """What ``harness-heads run -o out`` leaves: a run folder an operation, the plan in each."""
    world = replace(WORLD, plan=plan.digest)
    for name, write in (("mask", syn.write_ncs), ("steer", syn.write_cers)):
        write(out / name, world, run_json={})
        plan.save(out / name / "plan.json")
    (out / "report").mkdir()
    return out


def test_the_output_folder_of_run_brings_the_plan_of_its_runs(tmp_path: Path) -> None:
    out = planned(tmp_path)
    evidence = load_evidence([out])
    assert evidence.plan == PLAN and not evidence.exploratory
    assert evidence.digest == load_evidence([out / "mask", out / "steer"]).digest
    assert [dict(run.expected) for run in evidence.runs] == [{"ncs_digits": 12}, {"cers_digits": 12}]


def test_check_of_the_output_folder_judges_the_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(planned(tmp_path / "good"))]) == 0
    assert capsys.readouterr().out.count("  carried ") == 2
    bad = Plan(claims=(Claim("necessity", "dg-ord-last", "ncs_digits"),), r=39)
    assert main(["check", str(planned(tmp_path / "bad", bad))]) == 1
    assert "NOT CARRIED" in capsys.readouterr().out


def test_a_plan_that_is_not_at_hand_leaves_claims_unjudged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = syn.write_ncs(tmp_path, replace(WORLD, plan=PLAN.digest))
    assert main(["check", str(folder)]) == 1
    assert "plan whose content is not at hand" in capsys.readouterr().out


def test_items_that_a_run_below_did_not_deliver_are_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = planned(tmp_path)
    samples = syn.samples_file(out / "steer")
    samples.write_text("\n".join(samples.read_text(encoding="utf-8").splitlines()[:-4]) + "\n", encoding="utf-8")
    assert main(["check", str(out)]) == 1
    assert "4 of 12 items are missing" in capsys.readouterr().err


def test_a_fan_below_the_output_folder_is_read_as_one(tmp_path: Path) -> None:
    from test_protocol_run import answer
    from test_protocol_run import planned as fan

    folders = fan(tmp_path)
    for folder in folders:
        answer(folder, [0, 0, 1, 0] if folder.name == "set" else [1, 1, 1, 1])
    assert load_evidence([tmp_path]).digest == load_evidence(folders).digest
    # a head-set file that lies about is no run
    folders[1].joinpath("head_set.json").rename(tmp_path / "head_set.json")
    assert tmp_path not in look(tmp_path / "stock").fan


def test_the_folder_above_discoveries_stands_for_all_of_them(tmp_path: Path) -> None:
    run = syn.write_ncs(tmp_path / "run", WORLD)
    each = syn.write_discoveries(tmp_path / "discover", WORLD)
    whole = load_evidence([run, tmp_path / "discover"])
    assert (
        whole.digest == load_evidence([run, *each]).digest == load_evidence([run, tmp_path / "discover", *each]).digest
    )
    assert [pair["samples"] for pair in whole.discovery[0]["overlaps"]] == [10]


def add_stock(folder: Path, task: str = "mmstar") -> None:
    """Samples of a task of lmms-eval's own, in the same run."""
    file = syn.samples_file(folder)
    name = file.name.replace("ncs_digits", task)
    file.with_name(name).write_text(json.dumps({"doc_id": 0, "target": "A", "exact_match": 1.0}) + "\n")


def test_a_stock_task_beside_ours_is_noted_and_ours_reported(tmp_path: Path) -> None:
    alone = load_evidence([syn.write_ncs(tmp_path / "alone", WORLD)])
    folder = syn.write_ncs(tmp_path / "both", WORLD)
    add_stock(folder)
    both = load_evidence([folder])
    assert both.tasks[0].items == alone.tasks[0].items and len(both.tasks) == 1
    (note,) = both.notes
    assert note.startswith("task mmstar is lmms-eval's own")


def test_a_planned_run_with_a_stock_task_still_carries_its_claim(tmp_path: Path) -> None:
    plan = Plan(claims=PLAN.claims[:1], r=39)
    folder = syn.write_ncs(tmp_path, replace(WORLD, plan=plan.digest), run_json={"plan": plan.to_dict()})
    add_stock(folder)
    a = analyse(load_evidence([folder]), 40)
    (verdict,) = judge(a, findings(a))
    assert verdict.carried, verdict.reasons
