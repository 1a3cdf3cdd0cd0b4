"""Evidence: order changes nothing, and every kind of bad input is one clear line."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic as syn

from harness_heads.errors import HarnessHeadsError
from harness_heads.models.run_info import write_expected
from harness_heads.probes import item_record_from_dict
from harness_heads.protocol.evidence import evidence_from_dict, load_evidence
from harness_heads.protocol.plan import Plan
from harness_heads.protocol.runs import canonical
from harness_heads.protocol.summary import task_summary

WORLD = syn.World(items=8, controls=4)


def fails(match: str, *folders: Path) -> str:
    """The one line of the error that loading gives."""
    with pytest.raises(HarnessHeadsError, match=match) as caught:
        load_evidence(folders)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def records_of(folder: Path) -> list[Any]:
    lines = syn.samples_file(folder).read_text(encoding="utf-8").splitlines()
    return [item_record_from_dict(json.loads(line)["record"]) for line in lines]


def test_two_runs_merge_whatever_the_order(tmp_path: Path) -> None:
    a, b = syn.write_ncs(tmp_path / "a", WORLD), syn.write_cers(tmp_path / "b", WORLD)
    one, two = load_evidence([a, b]), load_evidence([b, a, a])
    assert one.digest == two.digest
    assert [t.task for t in one.tasks] == ["ncs_digits", "cers_digits"]


def test_ranks_and_line_order_change_nothing(tmp_path: Path) -> None:
    a = syn.write_ncs(tmp_path / "a", WORLD)
    b = syn.write_ncs(tmp_path / "b", replace(WORLD, ranks=2), order=[0, 2, 4, 6, 1, 3, 5, 7])
    assert load_evidence([a]).digest == load_evidence([b]).digest


def test_padding_copies_are_no_items(tmp_path: Path) -> None:
    def twice(records: list[Any]) -> None:
        records.append(records[3])

    a, b = syn.write_ncs(tmp_path / "a", WORLD), syn.write_ncs(tmp_path / "b", WORLD, edit=twice)
    assert load_evidence([a]).digest == load_evidence([b]).digest


def test_round_trip_is_exact(tmp_path: Path) -> None:
    evidence = load_evidence([syn.write_ncs(tmp_path / "a", WORLD), syn.write_cers(tmp_path / "b", WORLD)])
    text = json.dumps(evidence.to_dict(), allow_nan=False)
    back = evidence_from_dict(json.loads(text))
    assert back.digest == evidence.digest
    assert canonical(back.to_dict()) == canonical(evidence.to_dict())
    for one, two in zip(evidence.tasks, back.tasks, strict=True):
        for cell, block in one.blocks.items():
            np.testing.assert_array_equal(block.logprobs, two.blocks[cell].logprobs)


def test_values_are_those_of_the_file(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD)
    task = load_evidence([folder]).tasks[0]
    record = records_of(folder)[5]
    row = task.items.index(record.item)
    block = task.blocks[("matched", "mask:image")]
    for column, key in enumerate(block.sets):
        written = record.arms["matched"]["logprobs"]["mask:image"][key]
        assert block.logprobs[row, column].tolist() == [written[letter] for letter in "ABCD"]


def test_empty_folder(tmp_path: Path) -> None:
    fails("no samples in this folder", tmp_path)
    fails("no such run folder", tmp_path / "absent")
    with pytest.raises(HarnessHeadsError, match="no run folder given"):
        load_evidence([])


def test_results_without_samples(tmp_path: Path) -> None:
    (tmp_path / "20261201_results.json").write_text("{}")
    fails("results without samples; run again with --log_samples", tmp_path)


def test_torn_last_line_is_named_and_the_rest_used(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD)
    path = syn.samples_file(folder)
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-200], encoding="utf-8")
    evidence = load_evidence([folder])
    assert evidence.tasks[0].n == 7
    assert any("line 8, the last one, is torn" in note for note in evidence.notes)


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD)
    path = syn.samples_file(folder)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2] = lines[2][:50]
    path.write_text("\n".join(lines), encoding="utf-8")
    fails("line 3 is not JSON", folder)


def test_a_missing_rank_is_found(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD, order=[0, 2, 4, 6])
    message = fails("4 of 8 items are missing", folder)
    assert "rank 1 of 2 did not deliver" in message


def test_a_missing_item_is_found_even_at_the_end(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD, order=range(7), run_json={})
    assert "rank" not in fails("1 of 8 items is missing", folder)


def _results(folder: Path, value: dict[str, Any]) -> None:
    next(folder.rglob("*_results.json")).write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize("write", [syn.write_ncs, syn.write_stock])
def test_the_harness_count_of_items_finds_what_is_missing(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Without run.json, lmms-eval's own count says that more was asked for than the samples hold."""
    folder = write(tmp_path / "a", replace(WORLD, n_planned=40))
    _results(folder, {"n-samples": {"ncs_digits": {"original": 40, "effective": 8}}})
    assert any("8 of 40 planned items" in note for note in load_evidence([folder]).notes)
    _results(folder, {"n-samples": {"ncs_digits": {"original": 40, "effective": 9}}})
    fails("1 of 9 items is missing", folder)


def test_the_launcher_writes_what_was_asked_for(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", replace(WORLD, n_planned=40), run_json={"expected_items": {}})
    assert any("8 of 40" in note for note in load_evidence([folder]).notes)
    write_expected(folder, {"ncs_digits": 12})
    value = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert (value["expected_items"], value["op"]) == ({"ncs_digits": 12}, "mask")
    fails("4 of 12 items are missing", folder)
    write_expected(tmp_path, {"ncs_digits": 12})  # a stock model's folder has no run.json, and gets none
    assert not (tmp_path / "run.json").exists()


def test_no_number_comes_from_a_summary(tmp_path: Path) -> None:
    """A results file that contradicts the records changes nothing."""
    folder = syn.write_ncs(tmp_path / "a", WORLD)
    before = load_evidence([folder])
    _results(folder, {"results": {"ncs_digits": {"ncs,none": 0.99, "P_matched,none": 0.01}}})
    assert load_evidence([folder]).digest == before.digest


def test_a_shorter_run_is_noted(tmp_path: Path) -> None:
    evidence = load_evidence([syn.write_ncs(tmp_path / "a", replace(WORLD, n_planned=40))])
    assert any("8 of 40 planned items" in note for note in evidence.notes)


def _edit(change: Callable[[dict[str, Any]], None]) -> Callable[[list[dict[str, Any]]], None]:
    return lambda records: change(records[4])


def _cell(record: dict[str, Any], condition: str = "mask:image") -> dict[str, Any]:
    cell: dict[str, Any] = record["arms"]["matched"]["logprobs"][condition]
    return cell


def _nan(record: dict[str, Any]) -> None:
    next(iter(_cell(record).values()))["B"] = math.nan


def _positive(record: dict[str, Any]) -> None:
    next(iter(_cell(record).values()))["B"] = 0.7


def _too_much(record: dict[str, Any]) -> None:
    next(iter(_cell(record).values())).update({"A": -0.1, "B": -0.1})


def _hole(record: dict[str, Any]) -> None:
    _cell(record).popitem()


def _no_letter(record: dict[str, Any]) -> None:
    del next(iter(_cell(record).values()))["C"]


def _no_arm(record: dict[str, Any]) -> None:
    record["arms"]["mismatched"] = None


def _version(record: dict[str, Any]) -> None:
    record["recipe_version"] = 2


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_nan, "log-probability of B is nan"),
        (_positive, "log-probability of B is 0.7"),
        (_too_much, "probabilities sum to 1.8"),
        (_hole, "the fan is incomplete"),
        (_no_letter, "a log-probability is missing"),
        (_no_arm, "no answer for arm mismatched"),
        (_version, "two different tasks"),
    ],
)
def test_answers_that_cannot_be(tmp_path: Path, change: Callable[[dict[str, Any]], None], match: str) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD, edit=_edit(change))
    message = fails(match, folder)
    assert "samples of ncs_digits" in message


def test_minus_infinity_is_probability_zero(tmp_path: Path) -> None:
    def zero(record: dict[str, Any]) -> None:
        next(iter(_cell(record).values()))["D"] = -math.inf

    folder = syn.write_ncs(tmp_path / "a", WORLD, edit=_edit(zero))
    assert load_evidence([folder]).tasks[0].n == 8


def test_another_task_version(tmp_path: Path) -> None:
    def every(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["recipe_version"] = 99

    fails("version 99, this version reads 1", syn.write_ncs(tmp_path / "a", WORLD, edit=every))


def test_the_same_id_twice_with_other_answers(tmp_path: Path) -> None:
    def copy(records: list[dict[str, Any]]) -> None:
        records[1]["item"] = records[0]["item"]

    fails("the same item twice", syn.write_ncs(tmp_path / "a", WORLD, edit=copy))


def test_two_runs_with_different_items(tmp_path: Path) -> None:
    a = syn.write_ncs(tmp_path / "a", WORLD)
    b = syn.write_ncs(tmp_path / "b", replace(WORLD, seed=9))
    fails("two runs with different items", a, b)


def test_the_same_run_twice_under_two_names(tmp_path: Path) -> None:
    fails("given twice", syn.write_ncs(tmp_path / "a", WORLD), syn.write_ncs(tmp_path / "b", WORLD))


def test_two_revisions_of_a_model(tmp_path: Path) -> None:
    a = syn.write_ncs(tmp_path / "a", WORLD)
    run = syn.run_block(WORLD, syn.table(WORLD), "mask", [])
    other = {**run["model"], "revision": "seed-2"}
    b = syn.write_cers(tmp_path / "b", replace(WORLD, run={"model": other}))
    fails("two revisions of tiny-digits", a, b)


def test_baselines_that_move(tmp_path: Path) -> None:
    def shift(records: list[dict[str, Any]]) -> None:
        empty = next(e.key for e in syn.table(WORLD) if e.role == "empty")
        cell = records[3]["arms"]["text"]["logprobs"]["mask:text"][empty]
        cell["A"] -= 0.01

    fails("baselines under two conditions differ by 0.01", syn.write_ncs(tmp_path / "a", WORLD, edit=shift))


def test_edited_head_sets(tmp_path: Path) -> None:
    def edit(records: list[dict[str, Any]]) -> None:
        records[0]["arms"]["matched"]["run"]["sets"][1]["heads"][0] = [7, 15]

    fails("do not fit their digest", syn.write_ncs(tmp_path / "a", WORLD, edit=edit))


def test_ranks_with_different_sets(tmp_path: Path) -> None:
    def edit(records: list[dict[str, Any]]) -> None:
        run = syn.run_block(replace(WORLD, settings={"controls": 5}), syn.table(WORLD), "mask", [])
        records[1]["arms"]["matched"]["run"] = run

    fails("ranks were started with different settings", syn.write_ncs(tmp_path / "a", WORLD, edit=edit))


def test_answers_without_a_run_block(tmp_path: Path) -> None:
    def edit(records: list[dict[str, Any]]) -> None:
        del records[0]["arms"]["matched"]["run"]

    fails("no answer carries the run's settings", syn.write_ncs(tmp_path / "a", WORLD, edit=edit))
    # run.json is enough
    folder = syn.write_ncs(tmp_path / "b", WORLD, edit=edit, run_json={})
    assert load_evidence([folder]).runs[0].op == "mask"


def test_samples_of_other_tasks(tmp_path: Path) -> None:
    (tmp_path / "1_samples_mmlu.jsonl").write_text('{"doc_id": 0, "acc": 1.0}\n')
    fails("line 1 holds no item record", tmp_path)


def test_plan_digest_joins_run_and_plan(tmp_path: Path) -> None:
    plan = Plan(m=2)
    folder = syn.write_ncs(tmp_path / "a", replace(WORLD, plan=plan.digest), run_json={"plan": plan.to_dict()})
    evidence = load_evidence([folder])
    assert not evidence.exploratory
    assert evidence.plan == plan
    assert load_evidence([syn.write_ncs(tmp_path / "b", WORLD)]).exploratory


def test_a_plan_edited_after_the_run(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", replace(WORLD, plan=Plan(m=2).digest))
    Plan(m=3).save(tmp_path / "plan.json")
    with pytest.raises(HarnessHeadsError, match="were started with plan"):
        load_evidence([folder], tmp_path / "plan.json")


def test_runs_of_two_plans(tmp_path: Path) -> None:
    a = syn.write_ncs(tmp_path / "a", replace(WORLD, plan=Plan(m=2).digest))
    b = syn.write_cers(tmp_path / "b", replace(WORLD, plan=Plan(m=3).digest))
    fails("runs of different plans", a, b)


def test_a_task_run_again_uses_the_later_samples(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path / "a", WORLD)
    path = syn.samples_file(folder)
    path.with_name("20260101_samples_ncs_digits.jsonl").write_text("{}\n")
    evidence = load_evidence([folder])
    assert evidence.tasks[0].n == 8
    assert any("more than once" in note for note in evidence.notes)


def test_stock_models_have_no_intervention(tmp_path: Path) -> None:
    folder = syn.write_stock(tmp_path / "a", WORLD)
    evidence = load_evidence([folder])
    assert (evidence.runs, evidence.tasks[0].run) == ((), -1)
    summary = task_summary(records_of(folder))
    assert summary["intervention"] == "no intervention (stock model)"
    assert summary["accuracy matched"] == summary["parsable matched"] == 1.0
    assert summary["accuracy mismatched"] == 0.25  # always "B", right once in four


def test_large_samples_stream(tmp_path: Path) -> None:
    """Peak memory stays a small part of the file: lines are not kept."""
    world = replace(WORLD, items=60, controls=120, effects={"a": 0.1})
    folder = syn.write_ncs(tmp_path / "a", world)
    size = syn.samples_file(folder).stat().st_size
    tracemalloc.start()
    load_evidence([folder])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 4e6
    assert peak < size


def test_summary_needs_no_order_and_names_every_set(tmp_path: Path) -> None:
    records = records_of(syn.write_ncs(tmp_path / "a", WORLD))
    summary = task_summary(records)
    assert summary == task_summary(records[::-1])
    for name in WORLD.effects:
        for metric in (
            "ncs",
            "ncs_renorm",
            "drop_matched",
            "drop_mismatched",
            "ncs_v2",
            "ncs_logodds",
            "rank_p",
            "floor",
        ):
            assert f"tiny-digits/{name}: {metric}" in summary
    assert summary["P_matched"] == pytest.approx(0.97, abs=0.02)


def test_summary_of_cers(tmp_path: Path) -> None:
    summary = task_summary(records_of(syn.write_cers(tmp_path / "a", WORLD)))
    assert {"tiny-digits/dg-ref-qsp: cers", "tiny-digits/dg-ref-qsp: cers_symmetric", "P_oracle", "P_blank"} <= set(
        summary
    )


def test_summary_of_nothing() -> None:
    assert task_summary([]) == {"note": "no items"}
