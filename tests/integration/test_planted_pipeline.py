"""The whole pipeline on the planted model: task, wrapped host, controls and report give the NCS worked out by hand."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from launching import Launch
from PIL import Image
from planted import (
    ASSISTANT,
    END,
    HEADS,
    IMAGE,
    LETTER_IDS,
    LETTERS,
    MARKER,
    MERGE,
    PATCH,
    START,
    TURN_END,
    TURN_START,
    USER,
    WORD,
    PlantedPrompt,
    by_hand,
    plain,
    planted_model,
)  # fmt: skip
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

from harness_heads.heads import Geometry, Head, HeadSet, ModelRef
from harness_heads.tiny.processor import CHAT_TEMPLATE

GAIN = 2.0  # at the planted model's own gain every answer is certain
COLOURS = {"red": "A", "green": "B", "blue": "C", "white": "D", "black": "-"}
PIXELS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}
ITEMS = 6  # no multiple of four: letters are not balanced, so that a model with fixed letters has an NCS other than 0
QUESTION = "Which marker is shown?"
TASK = f"""task: planted_colours
class: !function harness_heads.tasks.task.HeadTask
data: {{path: colours}}
recipe: mcq_matched_mismatched
columns: {{image: image, label: label}}
question: {QUESTION}
n: {ITEMS}
seed: 7
options: {{text_question: "Which option is the word {{option}}?"}}
"""
SPECIAL = {
    "<|im_start|>": TURN_START, "<|im_end|>": TURN_END, "<|vision_start|>": START, "<|vision_end|>": END,
    "<|image_pad|>": IMAGE, "<|video_pad|>": 40,
}  # fmt: skip


def write_model(folder: Path) -> None:
    """The planted model with a tokenizer that knows its words, as a folder that transformers loads."""
    planted_model(torch.float32, GAIN).save_pretrained(folder)
    words = {"<pad>": 0, "word": WORD, "marker": MARKER, "user": USER, "assistant": ASSISTANT, **SPECIAL, **LETTER_IDS}
    raw = Tokenizer(models.WordLevel(words, unk_token="word"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="word", pad_token="<pad>", eos_token="<|im_end|>",
        additional_special_tokens=list(SPECIAL),
    )  # fmt: skip
    for name in ("image_token", "video_token", "vision_start_token", "vision_end_token"):
        content = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}.get(name, f"<|{name[:-6]}|>")
        setattr(tokenizer, name, content)
    size = {"shortest_edge": 16 * 16, "longest_edge": 1605632}
    pixels: dict[str, Any] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "patch_size": PATCH, "merge_size": MERGE}
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size, temporal_patch_size=2, **pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=size, temporal_patch_size=2, **pixels),
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Model, head sets, images and task in the current folder."""
    write_model(tmp_path / "model")
    for name, colour in PIXELS.items():
        (tmp_path / "colours" / name).mkdir(parents=True)
        for copy in range(4):
            Image.new("RGB", (32, 32), colour).save(tmp_path / "colours" / name / f"{copy}.png")
    (tmp_path / "planted_colours.yaml").write_text(TASK, encoding="utf-8")
    geometry = Geometry((HEADS, HEADS))
    for name, head in (("copying", Head(0, 0)), ("idle", Head(0, 2))):
        HeadSet(name, ModelRef("./model"), geometry, (head,)).save(tmp_path / f"{name}.json")
    return tmp_path


def tokens(text: str) -> list[str]:
    """Words and signs, one token each."""
    return re.findall(r"\w+|[^\w\s]+", text)


def prompt(colour: str, options: list[str]) -> PlantedPrompt:
    """Where the marker and the image stand in the prompt as the host renders it, counted from its words."""
    lines = "".join(f"\n{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True))
    question = tokens(f"{QUESTION}{lines}")
    before = ["<|im_start|>", *tokens("system You are a helpful assistant."), "<|im_end|>", "<|im_start|>", "user", "<"]
    cells = 64  # 64 x 64 pixels, as small as the host shows anything
    image = tuple(range(len(before), len(before) + cells))
    marker = image[-1] + 2 + question.index("marker")
    return PlantedPrompt({}, (64, 64), marker, image, COLOURS[colour] * cells, image[-1] + 2 + len(question) + 3)


def blind(row: int, key: int, of: PlantedPrompt) -> float:
    """Weights of the copying head without its image keys."""
    return 0.0 if key in of.image else 1.0


def test_the_pipeline_gives_the_ncs_worked_out_by_hand(launch: Launch, folder: Path) -> None:
    outcome = launch(
        *("--model", "masked_qwen3vl", "--tasks", "planted_colours", "--include_path", ".", "--output_path", "out"),
        *("--model_args", "pretrained=./model,head_set=copying.json+idle.json,controls=3"),
    )
    assert outcome.status == 0, outcome.err[-2000:]
    [samples] = (folder / "out").rglob("*_samples_*.jsonl")
    records = [json.loads(line)["record"] for line in samples.read_text(encoding="utf-8").splitlines()]
    run = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    key = {row["name"]: row["key"] for row in run["sets"] if row["role"] == "discovered"}
    empty = next(row["key"] for row in run["sets"] if row["role"] == "empty")
    assert len(records) == ITEMS

    expected = []
    for record in records:
        options, right = record["options"], LETTERS[record["correct"]]
        [absent] = set(COLOURS) - set(options)
        drops = {}
        for arm, colour in (("matched", options[record["correct"]]), ("mismatched", absent)):
            of = prompt(colour, options)
            clean = by_hand(of, plain(of), GAIN)
            masked = by_hand(of, lambda row, key, of=of: blind(row, key, of), GAIN)  # type: ignore[misc]
            found = record["arms"][arm]["logprobs"]["mask:image"]
            for name, values in ((empty, clean), (key["copying"], masked), (key["idle"], clean)):
                assert {k: math.exp(v) for k, v in found[name].items()} == pytest.approx(values, abs=1e-6)
            drops[arm] = clean[right] - masked[right]
        expected.append(drops["matched"] - drops["mismatched"])
    assert max(expected) > 0.1 and min(expected) < -0.1  # the items tell hands from chance

    report = json.loads((folder / "out" / "report" / "report.json").read_text(encoding="utf-8"))
    tests = {test["key"]: test for test in report["tests"] if test["score"] == "ncs"}
    copying, idle = tests[key["copying"]], tests[key["idle"]]
    assert copying["mean"] == pytest.approx(fmean(expected), abs=1e-6)
    assert abs(copying["mean"]) > 0.01
    assert copying["control_mean"] == 0 and copying["control_sd"] == 0  # other heads of the layer do nothing at all
    assert idle["mean"] == 0  # acted, without effect: a result
    [results] = (folder / "out").rglob("*_results.json")
    table = json.loads(results.read_text(encoding="utf-8"))["results"]["planted_colours"]
    assert float(table["copying: ncs,none"]) == pytest.approx(fmean(expected), abs=1e-4)
