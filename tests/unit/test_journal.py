"""The journal: what is answered stays answered, for exactly the run that asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness_heads.discovery.journal import Entry, PassJournal
from harness_heads.errors import HarnessHeadsError
from harness_heads.models.journal import Journal, answers_all
from harness_heads.probes import Probe

RUN = {"model": "m", "sets": ["a"]}


def probe(item: str, arm: str = "matched") -> Probe:
    return Probe("options", "ncs", item, arm, ("A", "B"))


def test_answers_survive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    Journal(path, RUN).put(probe("i1"), "réponse")
    again = Journal(path, RUN)
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


def test_a_whole_last_line_without_its_end_is_kept_and_not_glued_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, RUN).put(probe("i1"), "x")
    path.write_bytes(path.read_bytes()[:-1])
    Journal(path, RUN).put(probe("i2"), "y")
    again = Journal(path, RUN)
    assert (again.get(probe("i1")), again.get(probe("i2")), again.damaged) == ("x", "y", ())


@pytest.mark.parametrize("line", [b'{"key": ', b"[]", b"7", b'{"key": "k"}', b'{"key": "k", "response": {}}', b"\xff"])
def test_a_damaged_line_is_no_answer_and_is_said(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, RUN)
    journal.put(probe("i1"), "x")
    journal.put(probe("i2"), "y")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([line, *lines[1:]]))
    damaged = Journal(path, RUN)
    assert damaged.damaged == (1,)
    assert (damaged.get(probe("i1")), damaged.get(probe("i2"))) == (None, "y")
    damaged.put(probe("i1"), "x")
    assert Journal(path, RUN).get(probe("i1")) == "x"


@pytest.mark.parametrize("content", [b"# notes of mine", b"# notes\n# of mine\n", b'{"a": 1}'])
def test_a_file_that_is_no_journal_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(content)
    with pytest.raises(HarnessHeadsError, match=r"notes\.md: no line of it is an answer"):
        Journal(path, RUN)
    assert path.read_bytes() == content
    with pytest.raises(HarnessHeadsError, match="cannot be read"):
        Journal(tmp_path, RUN)


def test_an_answer_holds_every_condition_set_and_option() -> None:
    whole = {"c": {"k1": {"A": -0.5, "B": -1.0}, "k2": {"A": -0.5, "B": -1}}}
    asked = probe("i")

    def kept(logprobs: object) -> bool:
        return answers_all(json.dumps({"schema": 1, "logprobs": logprobs}), asked, ["c"], ["k1", "k2"])

    assert kept(whole)
    for broken in (
        {},
        [],
        None,
        {"c": whole["c"]["k1"]},
        {"c": {"k1": whole["c"]["k1"]}},
        {"c": {**whole["c"], "k2": {"A": -0.5}}},
        {"c": {**whole["c"], "k2": {"A": -0.5, "B": None}}},
        {"c": {**whole["c"], "k2": {"A": -0.5, "B": float("nan")}}},
    ):
        assert not kept(broken)
    for text in ("", "x", "3", "{}", '{"schema": 9}', '{"schema": 1, "odd": 2}', json.dumps(whole)[:-3]):
        assert not answers_all(text, asked, ["c"], ["k1"])


def test_only_answers_to_this_runs_requests_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    other, earlier = Journal(path, {"model": "other"}), Journal(path, RUN)
    good = json.dumps({"schema": 1, "logprobs": {"c": {"k": {"A": -1.0, "B": -2.0}}}})
    for item in "abc":
        other.put(probe(item), good)
    earlier.put(probe("a"), good)
    earlier.put(probe("b"), good[:-9])
    path.write_bytes(path.read_bytes() + b"{\n")
    journal = Journal(path, RUN)
    assert [journal.kept(probe(item), ["c"], ["k"]) for item in "abc"] == [good, None, None]
    assert list(journal.told(3)) == [
        f"1 of 3 answers found in {path}; going on from there",
        f"1 answers in {path} are damaged or incomplete; they are computed again",
        f"{path} cannot be read at line 6; what stood there is computed again",
    ]
    assert list(Journal(tmp_path / "new.jsonl", RUN).told(3)) == []


def test_an_answer_in_words_holds_a_text_and_a_box() -> None:
    asked = Probe("locate", "g", "i", "locate")
    value = {"schema": 1, "text": {"c": {"k": "[1,2]"}}, "boxes": {"c": {"k": None}}}
    assert answers_all(json.dumps(value), asked, ["c"], ["k"])
    assert not answers_all(json.dumps({**value, "boxes": {}}), asked, ["c"], ["k"])
    assert not answers_all(json.dumps({**value, "text": {"c": {"k": 3}}}), asked, ["c"], ["k"])


def test_without_a_file_answers_stay_in_memory() -> None:
    journal = Journal(None, RUN)
    journal.put(probe("i1"), "x")
    assert journal.get(probe("i1")) == "x"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(HarnessHeadsError, match="cannot be written"):
        Journal(tmp_path / "file" / "journal.jsonl", RUN).put(probe("i1"), "x")


def test_a_discovery_journal_keeps_a_whole_last_line_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    one, other = (Entry(name, name, np.ones((1, 1, 2, 2), np.float32)) for name in "ab")
    PassJournal(path, RUN).put([one])
    path.write_bytes(path.read_bytes()[:-1])
    PassJournal(path, RUN).put([other])
    again = PassJournal(path, RUN)
    assert again.resumed == 2 and again.get("a") is not None and again.get("b") is not None


def test_a_discovery_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").mkdir()
    (tmp_path / "odd.jsonl" / "file").write_text("x")
    with pytest.raises(HarnessHeadsError, match=r"odd\.jsonl cannot be read"):
        PassJournal(tmp_path / "odd.jsonl", RUN)
    for content in (b"[]\n", b"7\n", b"{\n", b'{"run": 1}\n'):
        (tmp_path / "other.jsonl").write_bytes(content)
        with pytest.raises(HarnessHeadsError, match=r"other\.jsonl"):
            PassJournal(tmp_path / "other.jsonl", RUN)
        assert (tmp_path / "other.jsonl").read_bytes() == content
