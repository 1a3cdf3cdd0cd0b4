"""``run.json``: added to by the next call of a run, and never written over where it cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness_heads.errors import HarnessHeadsError
from harness_heads.models.run_info import read_run_file, write_expected, write_run_file

RUN: dict[str, Any] = {"schema": 1, "settings": {"controls": 1}, "sets": [{"key": "k"}], "conditions": [{"op": "mask"}]}


def test_a_second_call_adds_its_tasks_and_conditions(tmp_path: Path) -> None:
    assert read_run_file(tmp_path) is None
    write_run_file(tmp_path, RUN, ["a"])
    write_expected(tmp_path, {"a": 4})
    write_run_file(tmp_path, {**RUN, "conditions": [{"op": "mask"}, {"op": "steer"}]}, ["b"])
    found = read_run_file(tmp_path)
    assert found is not None
    assert found["tasks"] == ["a", "b"] and found["expected_items"] == {"a": 4}
    assert found["conditions"] == [{"op": "mask"}, {"op": "steer"}]


def test_a_plan_that_lies_in_the_run_folder_stays_where_it_is(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    write_run_file(tmp_path, RUN, ["a"], plan)
    assert plan.read_text() == "{}"
    write_run_file(tmp_path / "other", RUN, ["a"], plan)
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["plan.json", "run.json"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(HarnessHeadsError, match=r"run file .*run\.json cannot be written"):
        write_run_file(tmp_path / "file", RUN, ["a"])


@pytest.mark.parametrize(
    "content",
    [
        "",
        json.dumps(RUN)[:-9],
        "[]",
        "{}",
        '{"version": 3}',
        json.dumps({**RUN, "sets": None}),
        json.dumps({**RUN, "conditions": {}}),
        json.dumps({**RUN, "expected_items": []}),
        "\x00",
    ],
)
def test_a_broken_or_foreign_file_is_named_and_left_as_it_is(content: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    for act in (
        lambda: read_run_file(tmp_path),
        lambda: write_run_file(tmp_path, RUN, ["a"]),
        lambda: write_expected(tmp_path, {"a": 4}),
    ):
        with pytest.raises(
            HarnessHeadsError, match=r"run\.json.*; move that file away and give the same command again"
        ):
            act()
    assert path.read_text() == content
