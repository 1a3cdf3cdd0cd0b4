"""Every shipped task, end to end: lmms-eval, the embedded model, a head set and a control, table and report.

Rows come from the fixtures in the hub's schema; the digits tasks run on the split that models are chosen on, so that
no test ever scores the evaluation split.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import datasets
import pytest
from launching import TINY, Launch

ROOT = Path(__file__).resolve().parents[2]
HUB = ROOT / "tests" / "fixtures" / "hub"


def small_copies(folder: Path) -> dict[str, list[str]]:
    """Copies of all YAMLs with four items and names of their own, by the model class that runs them."""
    by_class: dict[str, list[str]] = {"masked": [], "steered": [], "ablated": []}
    folder.mkdir()
    for path in sorted((ROOT / "tasks").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        # with the split replaced, the tasks on other splits are the same as those on evaluate
        if text.startswith("group:") or path.stem.endswith(("_discover", "_choose")):
            continue
        text = re.sub(r"^task: (\S+)", r"task: small_\1", text, flags=re.MULTILINE)
        text = re.sub(r"^n: \d+", "n: 4", text, flags=re.MULTILINE).replace("audited: 120", "audited: 4")
        text = text.replace("split: evaluate", "split: choose")
        if "recipe: grounding" in text:
            text = text.replace(", detection: 100", "").replace("options: {", "options: {detection: 6, ")
        (folder / path.name).write_text(text, encoding="utf-8")
        op = re.search(r"op: (\w+)", text)
        kind = op.group(1) if op else ("mask" if "matched_mismatched" in text or "ask: generate" in text else "steer")
        by_class[{"mask": "masked", "steer": "steered", "ablate": "ablated"}[kind]].append(f"small_{path.stem}")
    return by_class


@pytest.mark.parametrize("prefix", ["masked", "steered", "ablated"])
def test_tasks_run_end_to_end(prefix, launch: Launch, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_HEADS_DATA", str(HUB))
    names = small_copies(tmp_path / "yamls")[prefix]
    outcome = launch(
        *("--model", f"{prefix}_qwen3vl", "--model_args", f"{TINY},controls=1", "--limit", "1"),
        *("--tasks", ",".join(names), "--include_path", str(tmp_path / "yamls"), "--output_path", "out"),
    )
    assert outcome.status == 0, outcome.err[-2000:]
    [results] = Path("out").rglob("*_results.json")
    table = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert set(table) == set(names)
    for name in names:
        assert table[name]["record,none"] == "1 of 4 items (below plan)"
        rows = {key.removesuffix(",none") for key in table[name] if key.endswith(",none") and "stderr" not in key}
        if "vqa_" in name:
            assert {"accuracy plain", "parsable plain", "accuracy among parsable plain"} <= rows
        else:
            for end in ("rank_p", "gap", "p against zero (wrong null)"):
                assert any(row.endswith(end) for row in rows), (name, end)
    assert Path("out/report/report.html").exists()


MASKED = ("--model", "masked_qwen3vl", "--model_args", f"{TINY},controls=1", "--tasks", "ncs_imagenet")


def test_without_a_hub_one_line_says_what_is_missing(launch: Launch, monkeypatch):
    monkeypatch.delenv("HARNESS_HEADS_DATA", raising=False)
    outcome = launch(*MASKED)
    assert outcome.status == 1
    [line] = outcome.error_lines
    for part in ("ncs_imagenet", "ILSVRC/imagenet-1k", "--data ncs_imagenet=PATH", "HARNESS_HEADS_DATA=DIR"):
        assert part in line


def as_parquet(folder: Path, table: Any) -> None:
    (folder / "data").mkdir(parents=True)
    table.to_parquet(str(folder / "data" / "validation-00000-of-00014.parquet"))


def as_saved(folder: Path, table: Any) -> None:
    datasets.DatasetDict({"validation": table}).save_to_disk(str(folder))


def as_folders(folder: Path, table: Any) -> None:
    names = table.features["label"].names
    for number, row in enumerate(table):
        target = folder / "validation" / names[row["label"]] / f"{number}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        row["image"].save(target)


@pytest.mark.parametrize("form", [as_parquet, as_saved, as_folders])
def test_with_a_local_copy_imagenet_runs(form, launch: Launch, monkeypatch, tmp_path):
    monkeypatch.delenv("HARNESS_HEADS_DATA", raising=False)
    source = HUB / "ILSVRC/imagenet-1k/data/validation-00000-of-00014.parquet"
    form(tmp_path / "copy", datasets.load_dataset("parquet", data_files=str(source), split="train"))
    data = f"ncs_imagenet={tmp_path / 'copy'}"
    outcome = launch(*MASKED, "--limit", "1", "--output_path", "out", "--data", data)
    assert outcome.status == 0, outcome.err[-2000:]
    assert "1 of 400 items (below plan)" in outcome.out
    assert "tiny-digits/dg-ref-qsp: ncs" in outcome.out
