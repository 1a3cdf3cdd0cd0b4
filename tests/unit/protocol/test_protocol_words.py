"""Answers in words: right, wrong or no answer, whatever was asked; and what was lost, format or content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn

from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.words import ANY_INTERVENTION, NO_INTERVENTION, accuracies, intervention, verdict

BOX = {"gold": [0, 0, 50, 100], "size": [100, 100]}
CHOICE: dict[str, Any] = {"options": ("dog", "cat"), "letters": ("A", "B", "C"), "correct": 1}


@pytest.mark.parametrize(
    ("text", "extra", "more", "right"),
    [
        ("B", {}, CHOICE, True),
        ("(b) the cat", {}, CHOICE, True),
        ("a cat", {}, CHOICE, True),
        ("The answer is B because a dog barks.", {}, CHOICE, True),
        ("A", {}, CHOICE, False),
        ("C", {}, CHOICE, None),  # not on offer
        ("cannot say", {}, CHOICE, None),
        ("", {}, CHOICE, None),
        ("There are three.", {"answer_kind": "number", "answer": "3"}, {}, True),
        ("3 or 4", {"answer_kind": "number", "answer": "3"}, {}, None),
        ("10", {"answer_kind": "number", "answer": "1"}, {}, False),
        ("Yes, it is.", {"answer_kind": "yes_no", "answer": "yes"}, {}, True),
        ("No.", {"answer_kind": "yes_no", "answer": "yes"}, {}, False),
        ("The image.", {"answer_kind": "yes_no", "answer": "yes"}, {}, None),
        ("It is the Red one", {"answer_kind": "text", "answer": "red"}, {}, True),
        ("It is a mountain bike.", {"answer_kind": "text", "answer": "mountain bike"}, {}, True),
        ("infrared", {"answer_kind": "text", "answer": "red"}, {}, False),
        ("", {"answer_kind": "text", "answer": "red"}, {}, None),
        ('{"bbox_2d": [0, 0, 500, 1000]}', BOX, {}, True),
        ('{"bbox_2d": [500, 0, 1000, 1000]}', BOX, {}, False),
        ("no box", BOX, {}, None),
        ('[{"point_2d": [100, 100]}]', BOX, {"mask": [[5, 5, 15, 15]]}, True),
        ('[{"point_2d": [200, 100]}]', BOX, {"mask": [[5, 5, 15, 15]]}, False),
        ('[{"bbox_2d": [0, 0, 200, 200]}]', BOX, {"mask": [[5, 5, 15, 15]]}, True),  # a box counts as its centre
        ("there", BOX, {"mask": [[5, 5, 15, 15]]}, None),
    ],
)
def test_verdicts(text: str, extra: dict[str, Any], more: dict[str, Any], right: bool | None) -> None:
    assert verdict(text, extra, **more) is right


def test_format_and_content_are_told_apart(tmp_path: Path) -> None:
    """Of eight answers two are no letter, and of the six letters three are right."""
    folder = syn.write_stock(tmp_path / "a", syn.World(items=8))
    file = syn.samples_file(folder)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for i, line in enumerate(lines):
        right = line["record"]["letters"][line["record"]["correct"]]
        wrong = "A" if right != "A" else "B"
        line["record"]["plain"] = {"plain": "I cannot see" if i < 2 else right if i < 5 else wrong}
        line["record"]["arms"] = {"plain": None}
        line["record"]["extra"]["answer_kind"] = "choice"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    [task] = load_evidence([folder]).tasks
    assert accuracies(task) == {"plain": (3 / 8, 6 / 8, 3 / 6)}
    assert intervention(task) == ANY_INTERVENTION
    [stock] = load_evidence([syn.write_stock(tmp_path / "b", syn.World(items=8))]).tasks
    assert intervention(stock) == NO_INTERVENTION
