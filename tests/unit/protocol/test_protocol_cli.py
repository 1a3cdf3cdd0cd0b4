"""The subcommands report, check, compare, show and plan, as a user gives them."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn

from harness_heads.cli import check, compare, plan, report, show
from harness_heads.cli.main import main
from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.plan import Claim, Plan, load_plan

WORLD = syn.World(items=12, controls=39, control_mass=0.19)


def given(*words: str) -> int:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    for module in (report, check, compare, show, plan):
        module.add_parser(subparsers)
    arguments = parser.parse_args(words)
    status: int = arguments.run(arguments)
    return status


@pytest.fixture(scope="module")
def ncs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return syn.write_ncs(tmp_path_factory.mktemp("a"), WORLD)


def test_report_lies_in_the_run_folder_unless_told(
    ncs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert given("report", str(ncs), "-o", str(tmp_path / "out")) == 0
    paths = capsys.readouterr().out.split()
    assert [Path(p).name for p in paths] == ["report.html", "report.md", "report.json"]
    assert all(Path(p).is_file() for p in paths)


def test_check_without_claims_is_zero(ncs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert given("check", str(ncs)) == 0
    out = capsys.readouterr().out
    assert "No claim is made." in out
    assert "Checklist:" in out and "19. " in out


@pytest.mark.parametrize(("claimed", "status"), [("dg-ref-qsp", 0), ("dg-ord-last", 1)])
def test_check_exits_one_when_a_claim_is_not_carried(
    tmp_path: Path, claimed: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Plan(claims=(Claim("necessity", claimed, "ncs_digits"),), r=39)
    folder = syn.write_ncs(tmp_path, replace(WORLD, plan=made.digest), run_json={"plan": made.to_dict()})
    assert given("check", str(folder)) == status
    assert ("NOT CARRIED" in capsys.readouterr().out) is bool(status)


def test_check_reads_the_plan_that_is_named(tmp_path: Path) -> None:
    made = Plan(claims=(Claim("necessity", "dg-ref-qsp", "ncs_digits"),), r=39)
    folder = syn.write_ncs(tmp_path / "run", replace(WORLD, plan=made.digest))
    made.save(tmp_path / "plan.json")
    assert given("check", str(folder), "--plan", str(tmp_path / "plan.json")) == 0


def test_compare_of_a_run_with_itself_differs_in_nothing(ncs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert given("compare", str(ncs), str(ncs)) == 0
    out = capsys.readouterr().out
    assert "The two runs have the same settings" in out
    assert "not estimable (no spread over items)" in out


def test_compare_shows_settings_overlap_and_paired_test(
    ncs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = syn.write_ncs(tmp_path, replace(WORLD, controls=20, effects={"dg-ref-out": 0.1}))
    assert given("compare", str(ncs), str(other)) == 0
    out = capsys.readouterr().out
    assert "setting: controls" in out and "39" in out and "20" in out
    assert "tiny-digits/dg-ref-qsp / tiny-digits/dg-ref-out" in out
    row = next(line for line in out.splitlines() if "dg-ref-qsp - tiny-digits/dg-ref-out" in line)
    assert "0.3" in row


def test_show_draws_an_item_by_number_and_by_id(ncs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "item.svg"
    assert given("show", str(ncs), "5", "-o", str(target)) == 0
    out = capsys.readouterr().out
    assert "number 5" in out and "matched, set: P(c)" in out
    drawing = target.read_text(encoding="utf-8")
    assert drawing.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    item = json.loads(syn.samples_file(ncs).read_text(encoding="utf-8").splitlines()[5])["record"]["item"]
    assert given("show", str(ncs), item[:10], "--set", "dg-ord-last", "-o", str(target)) == 0
    assert "dg-ord-last" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["item.png", "item", "item.svg.pdf"])
def test_show_writes_no_svg_under_another_name(ncs: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(HarnessHeadsError, match=r"written as SVG; name it item.*\.svg"):
        given("show", str(ncs), "5", "-o", str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_every_drawing_is_refused_another_name_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ("tiny-digits/dg-ref-qsp", "tiny-digits/dg-ord-last")
    for words in (("overlap", *sets, "--picture"), ("attention", "--model", "no/such/model", "-o")):
        assert main([*words, str(tmp_path / "x.png")]) == 1
        assert "drawings are written as SVG; name it x.svg" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["discover", "import", "attention", "plan", "run", "report", "show", "lint-task"])
def test_o_is_output_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    helped = capsys.readouterr().out
    assert re.search(r"^  -o\b", helped, re.M) and "--output" in helped


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"seed": 5}, "share 0 items of ncs_digits"),
        ({"task": "ncs_other"}, "share no task"),
        ({"write": syn.write_grid_ncs, "task": "ncs_digits"}, "share no score"),
    ],
)
def test_compare_of_what_cannot_be_compared(ncs: Path, tmp_path: Path, other: dict[str, Any], why: str) -> None:
    write = other.pop("write", syn.write_ncs)
    task = other.pop("task", "ncs_digits")
    folder = write(tmp_path, replace(WORLD, controls=3, **other), task)
    with pytest.raises(HarnessHeadsError, match=why):
        given("compare", str(ncs), str(folder))


def test_a_plan_that_the_runs_were_not_started_with_is_said_first(
    ncs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Plan(claims=(Claim("necessity", "dg-ref-qsp", "ncs_digits"),), r=39)
    made.save(tmp_path / "plan.json")
    assert given("report", str(ncs), "--plan", str(tmp_path / "plan.json"), "-o", str(tmp_path / "out")) == 0
    assert "the report is EXPLORATORY" in capsys.readouterr().err
    first = (tmp_path / "out" / "report.md").read_text(encoding="utf-8").splitlines()
    assert any(
        f"EXPLORATORY: no run was started with the plan at hand ({made.digest[:12]})" in line for line in first[:4]
    )
    assert given("check", str(ncs), "--plan", str(tmp_path / "plan.json")) == 1
    # runs that carry another plan: no report at all
    folder = syn.write_ncs(tmp_path / "run", replace(WORLD, plan=replace(made, r=19).digest))
    with pytest.raises(HarnessHeadsError, match="give the plan that they were started with"):
        given("report", str(folder), "--plan", str(tmp_path / "plan.json"), "-o", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_show_of_nothing(ncs: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="no item '9999'"):
        given("show", str(ncs), "9999")
    with pytest.raises(HarnessHeadsError, match="did you mean"):
        given("show", str(ncs), "0", "--set", "tiny-digits/dg-ref-qsq")


def test_plan_writes_a_plan_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    words = ["--claim", "necessity:tiny-digits/dg-ref-qsp:ncs_digits:0.1"]
    words += ["--claim", "null:tiny-digits/dg-ord-last:ncs_digits:0.02"]
    assert given("plan", *words, "--m", "2", "--declare", "17=released", "-o", str(path)) == 0
    made = load_plan(path)
    assert (made.m, made.r, len(made.claims)) == (2, 79, 2)
    assert "least R for the floor 39" in capsys.readouterr().out


def test_plan_takes_its_time_from_a_run(ncs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12 items, 4 cells of 81 sets and the blank arm's baseline: 12 x (4 x 81 + 1) answers in 39 s, 0.01 s each."""
    words = ["plan", "--claim", "necessity:tiny-digits/dg-ref-qsp:ncs_digits", "-o", str(tmp_path / "plan.json")]
    with pytest.raises(HarnessHeadsError, match="do not say how long"):
        given(*words, "--like", str(ncs))
    assert not (tmp_path / "plan.json").exists()
    folder = syn.write_ncs(tmp_path / "run", WORLD)
    next(folder.rglob("*_results.json")).write_text('{"total_evaluation_time_seconds": "39.0"}')
    assert given(*words, "--n", "100", "--like", str(folder)) == 0
    out = capsys.readouterr().out
    # 100 items x 3 cells x (1 + 1 + 39) sets
    assert "12300 answers" in out and "at 0.01 s an answer" in out and "MB of memory" in out
