"""Shared: run the launcher in this process, in a folder of its own, without a hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from launching import Launch, Outcome


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
