"""``harness-heads plan`` refuses what could not be run or shown, and names the item and the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness_heads.cli import plan_checks
from harness_heads.cli.main import main
from harness_heads.cli.plan_checks import check_plan
from harness_heads.errors import HarnessHeadsError
from harness_heads.head_sets import resolve
from harness_heads.protocol.plan import Claim, Plan, load_plan

SET = "tiny-digits/dg-ref-qsp"
GOOD = f"necessity:{SET}:ncs_digits"
REPORTS = Path(__file__).parents[2] / "reports" / "tiny-digits"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """lmms-eval's own list takes seconds to read."""
    monkeypatch.setattr(plan_checks, "_installed", lambda include: frozenset({"mmstar", "pope"}))


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a command ends with; nothing is written."""
    before = {p: p.read_bytes() for p in folder.iterdir()}
    assert main(["plan", *words, "-o", str(folder / "plan.json")]) == 1
    assert {p: p.read_bytes() for p in folder.iterdir()} == before
    error = capsys.readouterr().err
    assert error.startswith("harness-heads plan: error: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ((), ("makes no claim", "--claim KIND:SET:TASK")),
        (("--claim", "necessity:tiny-digits/dg-ref-qsq:ncs_digits"), ("dg-ref-qsq", "did you mean")),
        (("--claim", f"necessity:{SET}:ncs_digit"), ("'ncs_digit'", "did you mean 'ncs_digits'")),
        (("--claim", f"necessity:{SET}:cers_digits"), ("cers_digits", "asks to steer", "such as ncs_digits")),
        (("--claim", f"steerability:{SET}:ncs_digits"), ("ncs_digits", "asks to mask", "such as cers_digits")),
        (("--claim", f"steerability:{SET}:mmstar"), ("mmstar", "lmms-eval's own", "such as ")),
        (("--claim", f"{GOOD}:inf"), ("margin=inf", "finite number above 0")),
        (("--claim", f"{GOOD}:nan"), ("margin=nan", "finite number above 0")),
        (("--claim", f"{GOOD}:-1"), ("margin=-1.0", "finite number above 0")),
        (("--claim", GOOD, "--families", "layr"), ("'layr'", "did you mean 'layer'")),
        (("--claim", GOOD, "--families", "damage+layer"), ("damage sets", "no null")),
        (("--claim", GOOD, "--k", "40"), ("holds 8 heads", "k=40", "give k=8 or less")),
        (("--claim", GOOD, "--negative-control", "tiny-digits/none-such"), ("tiny-digits/none-such",)),
        (("--claim", GOOD, "--pretrained", "Qwen/Qwen3-VL-8B-Instruct"), (SET, "give --pretrained tiny-digits")),
        (("--claim", "necessity:vrh/qwen3-vl-8b/refcoco:ncs_imagenet"), ("--pretrained Qwen/Qwen3-VL-8B-Instruct",)),
        (("--difference", f"{SET}:{SET}:ncs_digits"), ("and itself",)),
        (("--claim", GOOD, "--item-sd", "inf"), ("item-sd = inf",)),
        (("--claim", GOOD, "--seconds", "-1"), ("seconds = -1",)),
        (("--claim", GOOD, "--conditions", "0"), ("conditions = 0",)),
    ],
)
def test_plans_that_could_not_be_run(
    words: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(tmp_path, capsys, *words)
    for part in parts:
        assert part in error, error


def test_a_good_plan_is_written_and_may_be_written_again(tmp_path: Path) -> None:
    words = ["plan", "--claim", GOOD, "--difference", f"{SET}:tiny-digits/dg-ord-last:ncs_digits", "--k", "8"]
    words += ["--claim", f"necessity:{SET}:mmstar", "-o", str(tmp_path / "plan.json")]
    assert main(words) == main(words) == 0
    assert load_plan(tmp_path / "plan.json").k == 8


def test_another_plan_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--claim", GOOD, "-o", str(tmp_path / "plan.json")]) == 0
    capsys.readouterr()
    assert "holds another plan" in refused(tmp_path, capsys, "--claim", GOOD, "--n", "8")
    for text in ("{", json.dumps({"schema": 1, "model": "x"})):
        (tmp_path / "plan.json").write_text(text, encoding="utf-8")
        assert "is no plan" in refused(tmp_path, capsys, "--claim", GOOD)


def test_a_set_of_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    resolve(SET).save(tmp_path / "mine.json")
    words = ["plan", "--claim", f"necessity:{tmp_path / 'mine.json'}:ncs_digits", "-o", str(tmp_path / "plan.json")]
    assert main(words) == 0


def test_run_refuses_such_a_plan_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Plan(claims=(Claim("necessity", SET, "cers_digits"),), sets=(SET,), tasks=("cers_digits",),
         settings={"pretrained": "tiny-digits"}).save(tmp_path / "plan.json")  # fmt: skip
    assert main(["run", str(tmp_path / "plan.json"), "-o", str(tmp_path / "out"), "--dry-run"]) == 1
    assert "asks to steer" in capsys.readouterr().err


@pytest.mark.parametrize("path", [REPORTS / "plan.json", REPORTS / "grid" / "plan.json"], ids=["plan", "grid"])
def test_the_committed_plans_pass(path: Path) -> None:
    check_plan(load_plan(path))


def test_everything_wrong_is_said_at_once() -> None:
    plan = Plan(claims=(Claim("necessity", "tiny-digits/no", "nothing", family="any"),), families=("layr",), k=99,
                settings={"pretrained": "tiny-digits", "rows": "everything"}, sets=(SET,))  # fmt: skip
    with pytest.raises(HarnessHeadsError) as caught:
        check_plan(plan)
    for part in ("tiny-digits/no", "'nothing'", "'layr'", "'any'", "k=99", "rows=everything"):
        assert part in str(caught.value)


def test_tasks_of_lmms_eval_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    known = plan_checks._installed(())
    assert {"mmstar", "pope"} <= known and "nothing" not in known


MINE = """
task: my_pets
class: !function harness_heads.tasks.task.HeadTask
data: {path: ./pets}
recipe: mcq_matched_mismatched
columns: {image: image, label: label}
question: Which digit is shown?
n: 16
seed: 7
options: {text_question: "Which option is the word {option}?"}
"""


def test_a_plan_over_a_benchmark_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its operation is read from the YAML, or from what that includes, and its folder goes to every run."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "my_pets.yaml").write_text(MINE, encoding="utf-8")
    steered = "include: my_pets.yaml\ntask: my_steered_pets\nrecipe: grid_2x2\nprobe: {op: steer, beta: hard}\n"
    (tmp_path / "mine" / "my_steered_pets.yaml").write_text(steered, encoding="utf-8")
    plan, folder = str(tmp_path / "plan.json"), ["--include-path", str(tmp_path / "mine")]
    claims = ["--claim", f"necessity:{SET}:my_pets", "--claim", f"steerability:{SET}:my_steered_pets"]
    assert main(["plan", *claims, "-o", plan]) == 1
    assert "no task is called 'my_pets'" in capsys.readouterr().err
    assert main(["plan", "--claim", f"necessity:{SET}:my_steered_pets", *folder, "-o", plan]) == 1
    assert "asks to steer" in capsys.readouterr().err
    assert main(["plan", *claims, *folder, "-o", plan]) == 0
    capsys.readouterr()
    assert main(["run", plan, "-o", str(tmp_path / "out"), "--dry-run"]) == 1  # the folder is not known to the plan
    assert "no task is called 'my_pets'" in capsys.readouterr().err
    assert main(["run", plan, *folder, "-o", str(tmp_path / "out"), "--dry-run"]) == 0
    masked, steer = capsys.readouterr().out.splitlines()
    assert "--model masked_qwen3vl" in masked and "--tasks my_pets " in masked
    assert "--model steered_qwen3vl" in steer and "--tasks my_steered_pets " in steer
    for line in (masked, steer):
        assert line.endswith(f"--include_path {tmp_path / 'mine'}") or f"--include_path {tmp_path / 'mine'} " in line
