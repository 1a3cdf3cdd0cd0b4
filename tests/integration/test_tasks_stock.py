"""lmms-eval's own tasks, from their own YAMLs, under each intervention: what is done is the model class's business.

The hub's repositories are laid out under the current folder, where ``load_dataset`` finds ``owner/name`` first.
"""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest
from launching import TINY, Launch

from harness_heads.cli.main import main
from harness_heads.protocol.plan import Claim, Plan

HUB = Path(__file__).resolve().parents[1] / "fixtures" / "hub"
METRICS = {"mmstar": "average,none", "pope": "pope_accuracy,none"}


def lay_out(folder: Path) -> None:
    """MMStar as the fixtures have it, and POPE on MMStar's pictures."""
    mmstar = datasets.load_dataset("parquet", data_files=str(HUB / "Lin-Chen/MMStar/mmstar.parquet"), split="train")
    (folder / "Lin-Chen/MMStar/data").mkdir(parents=True)
    mmstar.to_parquet(str(folder / "Lin-Chen/MMStar/data/val-00000-of-00001.parquet"))
    text = {"question": "Is there a dog in the image?", "image_source": "x", "category": "adversarial"}
    rows = [
        {"id": str(i), "question_id": str(i), "answer": ("no", "yes")[i % 2], "image": mmstar[i]["image"], **text}
        for i in range(4)
    ]
    (folder / "lmms-lab-encoder/POPE/data").mkdir(parents=True)
    pope = datasets.Dataset.from_list(rows).cast_column("image", datasets.Image())
    pope.to_parquet(str(folder / "lmms-lab-encoder/POPE/data/test-00000-of-00001.parquet"))


@pytest.mark.parametrize("prefix", ["masked", "ablated", "steered"])
def test_stock_tasks_run_under_every_intervention(prefix: str, launch: Launch, tmp_path: Path) -> None:
    lay_out(tmp_path)
    controls = int(prefix == "masked")
    outcome = launch(
        *("--model", f"{prefix}_qwen3vl", "--model_args", f"{TINY},controls={controls}", "--tasks", "mmstar,pope"),
        *("--limit", "2", "--output_path", "out"),
    )
    assert outcome.status == 0, outcome.err[-2000:]
    assert ("under the head set alone, no control set is run" in outcome.err) == bool(controls)
    [results] = Path("out").rglob("*_results.json")
    table = json.loads(results.read_text(encoding="utf-8"))["results"]
    for task, metric in METRICS.items():
        assert 0 <= table[task][metric] <= 1
        [samples] = Path("out").rglob(f"*_samples_{task}.jsonl")
        assert len(samples.read_text(encoding="utf-8").splitlines()) == 2


def test_a_fan_of_a_stock_task_from_plan_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command runs host, set and controls one by one and reports the drop against the host's own score."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lay_out(tmp_path)
    name = "tiny-digits/dg-ref-qsp"
    settings = {"pretrained": "tiny-digits", "host": "qwen3vl", "op": "ablate", "limit": 2}
    plan = Plan(claims=(Claim("necessity", name, "pope"),), settings=settings, sets=(name,), tasks=("pope",), r=1)
    plan.save(tmp_path / "plan.json")
    assert main(["run", "plan.json", "-o", "out"]) == 0
    value = json.loads((tmp_path / "out/report/report.json").read_text(encoding="utf-8"))
    (test,) = value["tests"]
    assert test["score"] == "stock_drop" and len(test["controls"]) == 1
    assert len(list((tmp_path / "out/stock").rglob("*_samples_pope.jsonl"))) == 3


def test_ours_and_a_stock_task_in_one_run(launch: Launch, tmp_path: Path) -> None:
    """The stock task's score stands in lmms-eval's table; ours is reported, with a note on the other."""
    lay_out(tmp_path)
    words = ("--model", "masked_qwen3vl", "--model_args", f"{TINY},controls=0", "--tasks", "ncs_digits,mmstar")
    outcome = launch(*words, "--limit", "4", "--output_path", "out")
    assert outcome.status == 0, outcome.err[-2000:]
    assert "protocol report: out/report/report.html" in outcome.out
    value = json.loads(Path("out/report/report.json").read_text(encoding="utf-8"))
    assert [task["task"] for task in value["tasks"]] == ["ncs_digits"]
    assert any(note.startswith("task mmstar is lmms-eval's own") for note in value["notes"])


def test_the_untouched_host_on_a_task_of_ours(launch: Launch) -> None:
    """No head set: the arms are audited and no effect is made up."""
    args = "pretrained=tiny-digits,head_set=none"
    words = ("--model", "masked_qwen3vl", "--model_args", args, "--tasks", "ncs_digits", "--limit", "4")
    outcome = launch(*words, "--output_path", "out")
    assert outcome.status == 0, outcome.err[-2000:]
    value = json.loads(Path("out/report/report.json").read_text(encoding="utf-8"))
    assert value["tests"] == [] and "host alone was run" in value["sentences"][0]["text"]
    assert "Arms without intervention" in Path("out/report/report.md").read_text(encoding="utf-8")


def test_the_untouched_host_stands_alone(launch: Launch) -> None:
    args = "pretrained=tiny-digits,head_set=none+tiny-digits/dg-ref-qsp"
    outcome = launch("--model", "masked_qwen3vl", "--model_args", args, "--tasks", "ncs_digits", "--limit", "1")
    assert outcome.status == 1 and len(outcome.error_lines) == 1 and "stands alone" in outcome.error_lines[0]
