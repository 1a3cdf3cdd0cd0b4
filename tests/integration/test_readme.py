"""What the README says, done, with the embedded model in place of the hub's: its example and its command lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness_heads import tiny
from harness_heads.cli.main import build_parser
from harness_heads.cli.run_arguments import pinned
from harness_heads.settings import split_model_args

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands(program: str) -> list[list[str]]:
    """Every command line of a program in the README, words split as a shell does."""
    lines = "\n".join(blocks("")).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{program} ")]


def test_the_notebook_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = blocks("python")
    source = source.replace("Qwen/Qwen3-VL-8B-Instruct", str(tiny.WEIGHTS)).replace(
        "vrh/qwen3-vl-8b/refcoco", "tiny-digits/dg-ref-qsp"
    )
    content = [
        {"type": "image", "image": Image.new("RGB", (64, 64))},
        {"type": "text", "text": "Which digit is shown?"},
    ]
    scope: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
    exec(compile(source, "README.md", "exec"), scope)
    assert "Which digit is shown?" in capsys.readouterr().out


def test_every_harness_heads_command_parses() -> None:
    parser = build_parser()
    found = commands("harness-heads")
    assert len(found) >= 3
    for words in found:
        parser.parse_args(words)


def test_every_lmms_eval_command_names_known_models_tasks_sets_and_arguments() -> None:
    from lmms_eval.models import list_available_models

    from harness_heads.tasks.catalogue import operation

    found = commands("lmms_eval")
    assert len(found) >= 4
    for words in found:
        options = dict(zip(words[::2], words[1::2], strict=True))
        assert options["--model"] in list_available_models(include_aliases=True)
        arguments = options.get("--model_args", "").replace("head_set=my.json", "head_set=vrh/qwen3-vl-8b/refcoco")
        pairs = dict(part.split("=", 1) for part in pinned(arguments).split(",") if part)
        split_model_args(pairs, ["pretrained"])
        if "ablated" not in options["--model"]:
            assert operation(options["--tasks"]) is not None
