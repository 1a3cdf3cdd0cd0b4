"""The journal: what is answered stays answered, for exactly the run that asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_heads.errors import HarnessHeadsError
from harness_heads.models.journal import Journal
from harness_heads.probes import Probe

RUN = {"model": "m", "sets": ["a"]}


def probe(item: str, arm: str = "matched") -> Probe:
    return Probe("options", "ncs", item, arm, ("A", "B"))


def test_answers_survive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    Journal(path, RUN).put(probe("i1"), "réponse")
    again = Journal(path, RUN)
    assert again.resumed == 1
    assert again.get(probe("i1")) == "réponse"
    assert again.get(probe("i2")) is None
    assert again.get(probe("i1", "blank")) is None


def test_another_run_gets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, RUN).put(probe("i1"), "x")
    assert Journal(path, {**RUN, "sets": ["b"]}).get(probe("i1")) is None


def test_a_torn_last_line_is_cut_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path, RUN)
    first.put(probe("i1"), "x")
    first.put(probe("i2"), "y")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    torn = Journal(path, RUN)
    assert (torn.get(probe("i1")), torn.get(probe("i2"))) == ("x", None)
    torn.put(probe("i2"), "y")
    assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, RUN)
    journal.put(probe("i1"), "x")
    journal.put(probe("i2"), "y")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([b'{"key": ', *lines[1:]]))
    with pytest.raises(HarnessHeadsError, match="line 1 is damaged"):
        Journal(path, RUN)


def test_without_a_file_answers_stay_in_memory() -> None:
    journal = Journal(None, RUN)
    journal.put(probe("i1"), "x")
    assert journal.get(probe("i1")) == "x"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(HarnessHeadsError, match="cannot be written"):
        Journal(tmp_path / "file" / "journal.jsonl", RUN).put(probe("i1"), "x")
