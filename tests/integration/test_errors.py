"""Bad input: one clear line that names the item and the fix, and an exit status that is not zero."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launching import TINY, Launch

from harness_heads import head_sets


def masked(launch: Launch, model_args: str, task: str = "ncs_digits") -> str:
    """Run a masked model that must fail; its one error line."""
    outcome = launch("--model", "masked_qwen3vl", "--model_args", model_args, "--tasks", task, "--limit", "4")
    assert outcome.status != 0
    (line,) = outcome.error_lines
    assert "Traceback" not in outcome.err
    return line


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., str]:
    """A copy of the shipped set with some fields replaced; returns its path."""

    def write(**changes: Any) -> str:
        value = head_sets.resolve("tiny-digits/dg-ref-qsp").to_dict()
        value.update(changes)
        path = tmp_path / "edited.json"
        path.write_text(json.dumps(value))
        return str(path)

    return write


def test_unknown_head_set(launch: Launch) -> None:
    line = masked(launch, "pretrained=tiny-digits,head_set=tiny-digits/dg-ref-qps")
    assert "dg-ref-qps" in line and "did you mean 'tiny-digits/dg-ref-qsp'" in line


def test_set_made_for_another_model(launch: Launch) -> None:
    line = masked(launch, "pretrained=tiny-digits,head_set=vrh/qwen3-vl-8b/refcoco")
    assert "vrh/qwen3-vl-8b/refcoco" in line and "tiny-digits" in line


@pytest.mark.parametrize(
    ("heads", "says"),
    [
        ([[0, 0], [99, 0]], "layer 99 is out of range"),
        ([[0, 0], [0, 99]], "head 99 is out of range"),
        ([[0, -1]], "whole numbers >= 0"),
        ([[12.1, 0]], "whole numbers >= 0"),
        ([[0, 1], [0, 1]], "named 2 times"),
    ],
)
def test_heads_that_cannot_be(launch: Launch, edited: Callable[..., str], heads: list[Any], says: str) -> None:
    assert says in masked(launch, f"pretrained=tiny-digits,head_set={edited(heads=heads)}")


def test_negative_controls(launch: Launch) -> None:
    assert "controls=-1: must be 0 or more" in masked(launch, f"{TINY},controls=-1")


def test_settings_that_the_class_does_not_read(launch: Launch) -> None:
    assert "beta= does nothing under mask, only steer reads it" in masked(launch, f"{TINY},controls=0,beta=3")


def test_a_box_where_the_task_says_where_to_steer(launch: Launch) -> None:
    arguments = ("--model", "steered_qwen3vl", "--model_args", f"{TINY},controls=0,box=0-0-500-500")
    outcome = launch(*arguments, "--tasks", "cers_digits", "--limit", "4")
    assert outcome.status != 0
    assert "task 'cers_digits' says itself where to steer" in outcome.error_lines[0]


def test_a_plan_that_is_not_there_is_said_before_the_model_is_loaded(launch: Launch) -> None:
    assert "plan file nowhere.json does not exist" in masked(launch, "pretrained=nobody/nothing,plan=nowhere.json")


def test_unknown_model_arg(launch: Launch) -> None:
    assert "unknown model_arg 'control'; did you mean 'controls'" in masked(launch, f"{TINY},control=3")


def test_model_path_that_does_not_exist(launch: Launch) -> None:
    assert "pretrained=./nowhere: no such folder" in masked(launch, "pretrained=./nowhere")


def test_hub_not_reachable(launch: Launch) -> None:
    line = masked(launch, "pretrained=nobody/nothing")
    assert "nobody/nothing" in line and "pretrained=tiny-digits" in line


def test_bare_command_without_a_hub(launch: Launch) -> None:
    outcome = launch("--model", "masked_qwen3vl", "--tasks", "ncs_digits", "--limit", "4")
    assert outcome.status != 0
    (line,) = outcome.error_lines
    assert "Qwen/Qwen3-VL-8B-Instruct" in line and "pretrained=tiny-digits" in line


def test_masked_model_on_a_steering_task(launch: Launch) -> None:
    line = masked(launch, f"{TINY},controls=1", "cers_digits")
    assert "asks for steer" in line and "--model steered_qwen3vl" in line


def test_unknown_task(launch: Launch) -> None:
    outcome = launch("--model", "masked_qwen3vl", "--model_args", TINY, "--tasks", "ncs_digit")
    assert outcome.status != 0
    (line,) = outcome.error_lines
    assert "no task is called 'ncs_digit'; did you mean 'ncs_digits'?" in line
    assert "Traceback" not in outcome.err


def test_unknown_model(launch: Launch) -> None:
    outcome = launch("--model", "mask_qwen3vl", "--model_args", TINY, "--tasks", "ncs_digits")
    assert outcome.status != 0
    (line,) = outcome.error_lines
    assert "no model is called 'mask_qwen3vl'; did you mean 'masked_qwen3vl'?" in line
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--tasks", "ncs_digits", "--limit", "0"), "--limit 0 leaves no item"),
        (("--tasks", "ncs_digits", "--limit", "-3"), "--limit -3 leaves no item"),
        (("--tasks", ""), "--tasks names no task"),
        ((), "--tasks names no task"),
    ],
)
def test_nothing_to_do(launch: Launch, more: tuple[str, ...], says: str) -> None:
    outcome = launch("--model", "masked_qwen3vl", "--model_args", TINY, *more)
    assert outcome.status != 0
    (line,) = outcome.error_lines
    assert says in line


def test_an_evaluation_that_raises(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmms_eval.models.simple.dummy import Dummy

    def broken(self: object, requests: list[object]) -> list[str]:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(Dummy, "generate_until", broken)
    outcome = launch("--model", "dummy", "--tasks", "ncs_digits", "--limit", "4")
    assert outcome.status != 0
    assert "disk on fire" in outcome.err


def test_a_config_file_is_refused_in_one_line(launch: Launch) -> None:
    outcome = launch("--config", "x.yaml", "--model", "dummy", "--tasks", "ncs_digits")
    assert outcome.status != 0
    assert len(outcome.error_lines) == 1


@pytest.mark.parametrize(("entry", "says"), [("ncs_digits", "TASK=PATH"), ("ncs_digits=/nowhere", "does not exist")])
def test_local_data_that_cannot_be(launch: Launch, entry: str, says: str) -> None:
    outcome = launch("--model", "dummy", "--tasks", "ncs_digits", "--data", entry)
    assert outcome.status != 0
    assert says in outcome.error_lines[0]
