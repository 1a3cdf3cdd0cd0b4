"""The main job on the embedded model: identity, journal, numbers, stock tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import TINY, Launch

from harness_heads import tiny
from harness_heads.conditions import Condition
from harness_heads.heads import HeadSet, empty_set

SHORT = ("--limit", "4")


def masked(launch: Launch, *more: str, args: str = f"{TINY},controls=3", task: str = "ncs_digits") -> Any:
    return launch("--model", "masked_qwen3vl", "--model_args", args, "--tasks", task, *SHORT, *more)


def records(folder: Path) -> list[dict[str, Any]]:
    """Item records of the only samples file below ``folder``."""
    (path,) = folder.rglob("*_samples_*.jsonl")
    return [json.loads(line)["record"] for line in path.read_text().splitlines()]


def answers(folder: Path) -> dict[str, Any]:
    """What each item answered, without the note of what the run was."""
    out = {}
    for record in records(folder):
        for arm in record["arms"].values():
            arm.pop("run", None)
        out[record["item"]] = record["arms"]
    return out


@pytest.fixture(scope="module")
def wrapped() -> Any:
    """The masked host on the embedded model."""
    from harness_heads.models.wrapped import wrapped_class

    return wrapped_class("masked", "qwen3_vl")(pretrained=tiny.NAME, controls=0, verify=False)


@pytest.fixture(scope="module")
def prompts(wrapped: Any) -> list[dict[str, torch.Tensor]]:
    """Inputs of the first items' arms of both demo tasks, as the host makes them."""
    from lmms_eval.tasks import TaskManager, get_task_dict

    from harness_heads.cli.run_arguments import TASKS
    from harness_heads.models.capture import run_through_host

    found: list[dict[str, torch.Tensor]] = []
    for name, task in get_task_dict(["ncs_digits", "cers_digits"], TaskManager(include_path=str(TASKS))).items():
        task.build_all_requests(limit=4, rank=0, world_size=1)
        wrapped.task_dict[name] = task.dataset
        run_through_host(
            wrapped.host_generate, wrapped.model, task.instances, lambda _, inputs, __: found.append(dict(inputs))
        )
    return found


def test_an_empty_set_is_the_host_bit_for_bit(wrapped: Any, prompts: list[dict[str, torch.Tensor]]) -> None:
    nothing = empty_set(wrapped.reference, wrapped.engine.geometry)
    assert len(prompts) >= 20
    for inputs in prompts:
        with torch.no_grad():
            logits = wrapped.model(**inputs).logits
            text = wrapped.model.generate(**inputs, max_new_tokens=6, do_sample=False)
            with wrapped.engine.generating(nothing, Condition("mask")):
                under = wrapped.model(**inputs).logits
                under_text = wrapped.model.generate(**inputs, max_new_tokens=6, do_sample=False)
        assert torch.equal(logits, under)
        assert torch.equal(text, under_text)


def test_the_model_is_bit_identical_after_an_intervention(wrapped: Any, prompts: list[dict[str, torch.Tensor]]) -> None:
    everything = HeadSet("all", wrapped.reference, wrapped.engine.geometry, wrapped.engine.geometry.all_heads())
    with torch.no_grad():
        before = wrapped.model(**prompts[0]).logits
        with wrapped.engine.generating(everything, Condition("mask")):
            inside = wrapped.model(**prompts[0]).logits
        after = wrapped.model(**prompts[0]).logits
    assert torch.equal(before, after)
    assert not torch.equal(before, inside)


def test_a_run_leaves_everything_that_the_numbers_need(launch: Launch, tmp_path: Path) -> None:
    outcome = masked(launch, "--output_path", "out")
    assert outcome.status == 0, outcome.err
    assert "protocol report: out/report/" in outcome.out
    assert "3 control sets" in outcome.err
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["tasks"] == ["ncs_digits"]
    assert [row["role"] for row in run["sets"]].count("control") == 3
    assert run["proof"]["untouched_bit_equal"] is True
    html = (tmp_path / "out" / "report" / "report.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in html  # the gallery shows the items, not only their names
    for record in records(tmp_path / "out"):
        for arm in ("matched", "mismatched"):
            sets = record["arms"][arm]["logprobs"]["mask:image"]
            assert set(sets) == {row["key"] for row in run["sets"]}
    first = [arm for record in records(tmp_path / "out") for arm in record["arms"].values() if arm.get("run")]
    assert len(first) == 1
    assert first[0]["run"]["sets"] == run["sets"]


def test_default_run_folder(launch: Launch, tmp_path: Path) -> None:
    assert masked(launch).status == 0
    (folder,) = (tmp_path / "reports" / "runs").iterdir()
    assert folder.name.endswith("-ncs_digits")


def test_a_killed_run_goes_on_and_ends_with_the_same_numbers(launch: Launch, tmp_path: Path) -> None:
    arguments = ["--model", "masked_qwen3vl", "--model_args", f"{TINY},controls=3", "--tasks", "ncs_digits"]
    arguments += ["--limit", "12", "--output_path"]
    journal = tmp_path / "killed" / "journal.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "harness_heads", *arguments, "killed"],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 180
    while not journal.exists() or journal.read_bytes().count(b"\n") < 5:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored = journal.read_bytes().count(b"\n")
    assert stored < 12 * 4
    first, *rest = journal.read_text().splitlines(keepends=True)
    journal.write_text(json.dumps({**json.loads(first), "response": '{"schema": 1}'}) + "\n" + "".join(rest))
    again = launch(*arguments, "killed")
    assert again.status == 0, again.err
    assert f"{stored - 1} of 48 answers found in" in again.err
    assert "1 answers in killed/journal.jsonl are damaged or incomplete" in again.err
    assert launch(*arguments, "whole").status == 0
    assert answers(tmp_path / "killed") == answers(tmp_path / "whole")


def test_an_edited_head_set_is_not_answered_from_the_cache(launch: Launch, tmp_path: Path) -> None:
    from harness_heads import head_sets

    heads = head_sets.resolve("tiny-digits/dg-ref-qsp")
    path = tmp_path / "mine.json"
    heads.save(path)
    cached = ("--use_cache", str(tmp_path / "cache"))
    args = f"pretrained=tiny-digits,head_set={path},controls=0"
    assert masked(launch, *cached, "--output_path", "a", args=args).status == 0
    heads.top(2).save(path)
    assert masked(launch, *cached, "--output_path", "b", args=args).status == 0
    keys = [set(r["arms"]["matched"]["logprobs"]["mask:image"]) for n in "ab" for r in records(tmp_path / n)[:1]]
    assert keys[0] != keys[1]


def test_steering_runs(launch: Launch, tmp_path: Path) -> None:
    arguments = ["--model", "steered_qwen3vl", "--model_args", f"{TINY},controls=2,beta=3+hard"]
    outcome = launch(*arguments, "--tasks", "cers_digits", *SHORT, "--output_path", "out")
    assert outcome.status == 0, outcome.err
    conditions = set(records(tmp_path / "out")[0]["arms"]["grid"]["logprobs"])
    assert conditions == {f"steer:{cell}:beta={beta}" for cell in ("correct", "distractor") for beta in ("3", "hard")}


@pytest.mark.parametrize("model", ["dummy", "qwen3_vl"])
def test_a_stock_model_is_scored_without_an_intervention(launch: Launch, model: str) -> None:
    args = f"pretrained={tiny.WEIGHTS},device=cpu,device_map=cpu" if model == "qwen3_vl" else ""
    outcome = launch("--model", model, "--model_args", args, "--tasks", "ncs_digits", "--limit", "4")
    assert outcome.status == 0, outcome.err
    assert "no intervention" in outcome.out
