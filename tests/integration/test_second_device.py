"""Whole runs with the model on another device: the launcher's answers are those of the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import TINY, Launch
from lmms_eval.models.chat.qwen3_vl import Qwen3_VL
from second_device import DEVICE, moved, second_device
from test_locate import CONDITIONS, answer
from test_tasks_stock import lay_out

from harness_heads import tiny
from harness_heads.engine import Engine
from harness_heads.models import mixin
from harness_heads.models.wrapped import wrapped_class


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hosts load on the CPU and are moved before anything of ours sees them."""

    def on_device(model: Any, *arguments: Any, **options: Any) -> Engine:
        return Engine(moved(model), *arguments, **options)

    monkeypatch.setattr(mixin, "Engine", on_device)
    monkeypatch.setattr(Qwen3_VL, "device", property(lambda _: DEVICE))
    with second_device():
        yield


def answers(folder: Path) -> dict[tuple[str, int], Any]:
    """What every item was answered, by task and number; log-probabilities rounded."""
    found = {}
    for path in folder.rglob("*_samples_*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            value = json.loads(line)
            text = value["filtered_resps"][0]
            if text.startswith("{"):
                record = json.loads(text)
                text = {
                    (condition, key, option): round(number, 3)
                    for condition, by_set in record["logprobs"].items()
                    for key, by_option in by_set.items()
                    for option, number in by_option.items()
                }
            found[path.stem.split("_samples_")[1], value["doc_id"]] = text
    return found


@pytest.mark.parametrize(
    ("prefix", "task"), [("masked", "ncs_digits"), ("steered", "cers_digits"), ("ablated", "pope")]
)
def test_a_run_answers_as_on_the_cpu(
    prefix: str, task: str, launch: Launch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lay_out(tmp_path)
    controls = 0 if task == "pope" else 2
    words = ["--model", f"{prefix}_qwen3vl", "--model_args", f"{TINY},controls={controls}", "--tasks", task]
    words += ["--limit", "2", "--output_path"]
    for folder in ("here", "there"):
        if folder == "there":
            request.getfixturevalue("elsewhere")
        outcome = launch(*words, folder)
        assert outcome.status == 0, outcome.err[-2000:]
    here, there = answers(tmp_path / "here"), answers(tmp_path / "there")
    assert set(here) == set(there) and len(here) == 2
    for item, expected in here.items():
        assert there[item] == (pytest.approx(expected, abs=2e-3) if isinstance(expected, dict) else expected)


def test_boxes_as_on_the_cpu(request: pytest.FixtureRequest) -> None:
    def made() -> Any:
        return answer(wrapped_class("masked", "qwen3_vl")(pretrained=tiny.NAME, controls=1, verify=False), 4)

    expected = made()
    request.getfixturevalue("elsewhere")
    found = made()
    for condition in CONDITIONS:
        assert found.text[condition.name] == expected.text[condition.name]
        for key, shift in expected.dose[condition.name].items():
            assert found.dose[condition.name][key]["before"] == pytest.approx(shift["before"], rel=1e-4)
