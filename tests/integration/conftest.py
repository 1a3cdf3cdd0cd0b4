"""Shared: run the launcher in this process, in a folder of its own, without a hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

TINY = "pretrained=tiny-digits,head_set=tiny-digits/dg-ref-qsp"


@dataclass(frozen=True)
class Outcome:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str

    @property
    def error_lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("lmms_eval: error:")]


Launch = Callable[..., Outcome]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Launch:
    """``launch("--model", ..., ...)`` in an empty current folder."""
    from harness_heads.cli.launch import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HARNESS_HEADS_RUN", raising=False)

    def run(*arguments: str) -> Outcome:
        capfd.readouterr()
        status = main(arguments)
        out, err = capfd.readouterr()
        return Outcome(status, out, err)

    return run
