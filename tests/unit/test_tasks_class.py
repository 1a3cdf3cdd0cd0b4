"""HeadTask inside lmms-eval: one request per arm, records out, the same numbers whoever answers and in what order."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from harness_heads.conditions import condition_from_dict
from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import ProbeResult, item_record_from_dict, probe_from_dict
from harness_heads.tasks.lint import read_yaml
from harness_heads.tasks.pooling import stratified_mean
from harness_heads.tasks.task import POINTER, RECORD, HeadTask

TASKS = Path(__file__).resolve().parents[2] / "tasks"
RUN_KEYS = ("empty0000000000", "set00000000000a")


def task_of(name: str, **changes: Any) -> HeadTask:
    config = dict(read_yaml(next(TASKS.rglob(f"{name}.yaml"))).config or {})
    return HeadTask(config={**config, **changes})


def requests_of(task: HeadTask, **how: Any) -> list[Any]:
    task.build_all_requests(**how)
    return list(task.instances)


def answered(task: HeadTask, reply: Any, **how: Any) -> list[dict[str, Any]]:
    """What lmms-eval does after a model: filters, then ``process_results`` per document."""
    by_doc: dict[int, list[Any]] = {}
    for request in requests_of(task, **how):
        request.resps.append(reply(request))
        by_doc.setdefault(request.doc_id, []).append(request)
    task.apply_filters()
    docs = task.dataset[task.config.test_split]
    return [task.process_results(docs[i], [r.filtered_resps["none"] for r in by_doc[i]]) for i in sorted(by_doc)]


def letter(request: Any) -> str:
    return "A"


@pytest.fixture(scope="module")
def ncs() -> HeadTask:
    return task_of("ncs_digits", n=12)


def test_one_request_per_arm_with_its_probe():
    task = task_of("ncs_digits", n=4)
    requests = requests_of(task)
    assert [r.metadata["probe"]["arm"] for r in requests[:4]] == ["matched", "mismatched", "blank", "text"]
    assert [r.idx for r in requests[:4]] == [0, 1, 2, 3]
    probe = probe_from_dict(requests[0].metadata["probe"])
    assert probe.to_dict() == requests[0].metadata["probe"]
    assert probe.ask == "options" and probe.options == ("A", "B", "C", "D") and probe.task == "ncs_digits"
    assert [c.name for c in probe.conditions] == ["mask:image"]
    text = probe_from_dict(requests[3].metadata["probe"])
    assert [c.name for c in text.conditions] == ["mask:image", "mask:text"]
    assert probe_from_dict(requests[2].metadata["probe"]).conditions == ()


def test_response_caches_tell_arms_and_items_apart():
    task = task_of("ncs_digits", n=8)
    contexts = [r.args[0] for r in requests_of(task)]
    assert len(set(contexts)) == len(contexts) == 32


def test_every_arm_shows_its_own_image():
    task = task_of("ncs_digits", n=4)
    docs = task.dataset[task.config.test_split]
    shown = []
    for request in requests_of(task)[:4]:
        _, doc_to_messages, gen_kwargs, doc_id, name, split = request.args
        assert (name, split) == ("ncs_digits", "evaluate")
        assert gen_kwargs["do_sample"] is False
        [message] = doc_to_messages(docs[doc_id])
        image, text = message["content"]
        assert text["text"] == docs[doc_id]["arms"][request.metadata["probe"]["arm"]]["text"]
        shown.append(image["url"].tobytes())
    assert shown[0] == shown[3] and len(set(shown)) == 3


def test_documents_are_plain_json():
    task = task_of("cers_digits", n=4)
    docs = list(task.dataset[task.config.test_split])
    assert json.loads(json.dumps(docs)) == docs
    assert task.eval_docs_no_media is not None and len(task.eval_docs_no_media) == 4


def test_a_stock_model_gives_accuracy_and_no_intervention(ncs):
    rows = answered(task_of("ncs_digits", n=12), letter)
    record = item_record_from_dict(rows[0][RECORD])
    assert record.arms == dict.fromkeys(("matched", "mismatched", "blank", "text"))
    assert record.plain["matched"] == "A"
    assert record.n_planned == 12 and record.recipe == "mcq_matched_mismatched"
    assert {k: v for k, v in rows[0].items() if k != RECORD} == dict.fromkeys(
        [
            "n",
            "intervention",
            *(f"{what} {arm}" for arm in record.arms for what in ("accuracy", "parsable", "accuracy among parsable")),
        ],
        POINTER,
    )


def table(task: HeadTask, rows: list[dict[str, Any]]) -> dict[str, Any]:
    aggregation = task.aggregation()
    return {name: aggregation[name]([row[name] for row in rows]) for name in rows[0]}


def test_rows_of_the_table():
    task = task_of("ncs_digits", n=12)
    shown = table(task, answered(task, letter))
    assert shown[RECORD] == "12 of 12 items"
    assert shown["intervention"].startswith("no intervention")
    assert shown["accuracy matched"] == 0.25 and shown["parsable matched"] == 1.0


def test_the_text_arm_has_its_own_right_letter():
    task = task_of("ncs_digits", n=12)
    docs = {doc["item"]: doc for doc in task.dataset[task.config.test_split]}

    def knows_the_words(request: Any) -> str:
        doc = docs[request.metadata["probe"]["item"]]
        asked = doc["extra"]["correct"]["text"] if request.metadata["probe"]["arm"] == "text" else doc["correct"]
        return f"({doc['letters'][asked]})"

    shown = table(task, answered(task, knows_the_words))
    assert all(shown[f"accuracy {arm}"] == 1.0 for arm in ("matched", "mismatched", "blank", "text"))


def test_a_short_run_is_flagged():
    task = task_of("ncs_digits", n=12)
    shown = table(task, answered(task, letter, limit=4))
    assert shown[RECORD] == "4 of 12 items (below plan)"


def test_order_and_ranks_change_nothing():
    whole = task_of("ncs_digits", n=10)
    rows = answered(whole, letter)
    expected = table(whole, rows)
    parts = []
    for rank in range(2):
        task = task_of("ncs_digits", n=10)
        parts.append(pickle.loads(pickle.dumps(answered(task, letter, rank=rank, world_size=2))))
    gathered = [row for part in parts for row in part]  # 0, 2, 4, ..., 1, 3, ...
    assert [row[RECORD]["index"] for row in gathered] != [row[RECORD]["index"] for row in rows]
    main = task_of("ncs_digits", n=10)
    answered(main, letter, rank=0, world_size=2)
    assert table(main, gathered) == expected
    assert sorted(row[RECORD]["item"] for row in gathered) == sorted(row[RECORD]["item"] for row in rows)


def test_the_request_cache_is_not_used():
    """It would answer for another seed, and its requests have lost their messages."""
    task = task_of("ncs_digits", n=4)
    first = requests_of(task, cache_requests=True, rewrite_requests_cache=True)
    other = task_of("ncs_digits", n=4, seed=1)
    second = requests_of(other, cache_requests=True)
    assert {r.args[0] for r in first}.isdisjoint(r.args[0] for r in second)
    assert all(callable(r.args[1]) for r in second)


def test_a_rank_without_documents_pads():
    task = task_of("ncs_digits", n=4)
    requests = requests_of(task, rank=5, world_size=6)
    assert requests and all(r.metadata["__padding_only__"] for r in requests)


def wrapped(request: Any) -> str:
    """The answer of a wrapped model, made up: the right letter is lost when the set is blind."""
    probe = probe_from_dict(request.metadata["probe"])
    names = [c.name for c in probe.conditions] or ["none"]
    keys = RUN_KEYS if probe.conditions else RUN_KEYS[:1]
    low = {"A": -1.5, "B": -1.5, "C": -1.5, "D": -1.5}
    return ProbeResult(logprobs={n: {k: low for k in keys} for n in names}, image_sha=("x",)).to_json()


def test_probe_results_reach_the_record():
    task = task_of("ncs_digits", n=4)
    task._rows = ()  # the summary of real runs needs their head sets; records do not
    rows = answered(task, wrapped)
    record = item_record_from_dict(rows[0][RECORD])
    assert not record.plain
    result = record.arms["matched"]
    assert isinstance(result, Mapping)
    assert result["logprobs"]["mask:image"][RUN_KEYS[1]]["B"] == -1.5
    assert set(record.images) == {"matched", "mismatched", "blank", "text"}
    assert record.images["matched"] == record.images["text"] != record.images["mismatched"]


def test_record_of_a_grid_names_regions_and_distractor():
    task = task_of("cers_digits", n=4)
    task._rows = ()
    record = item_record_from_dict(answered(task, wrapped)[0][RECORD])
    assert set(record.regions) == {"grid"} and set(record.regions["grid"]) == {"correct", "distractor"}
    assert record.extra["distractor_option"] != record.correct
    assert record.extra["size"] == [128, 128]


def test_results_are_the_same_from_a_cache():
    """Nothing is painted when every answer comes from a cache; the record must not show it."""
    fresh, cached = task_of("ncs_digits", n=4), task_of("ncs_digits", n=4)
    for request in requests_of(fresh):
        request.args[1](fresh.dataset["evaluate"][request.doc_id])
    assert answered(fresh, letter) == answered(cached, letter)


def test_yaml_options_reach_the_conditions():
    task = task_of("cers_digits", n=4, probe={"op": "steer", "beta": 3.0, "rows": "question+last"})
    [first, _] = requests_of(task)[0].metadata["probe"]["conditions"]
    assert condition_from_dict(first).name == "steer:correct:rows=question+last:beta=3"
    task = task_of("ncs_digits", n=4, probe={"op": "ablate"})
    assert [c["op"] for c in requests_of(task)[3].metadata["probe"]["conditions"]] == ["ablate"]


def test_all_problems_of_a_yaml_come_in_one_line():
    with pytest.raises(HarnessHeadsError) as caught:
        task_of("ncs_digits", n=0, sed=3, recipe="mcq_matched_mismatch", columns={"imge": "image"})
    said = str(caught.value)
    assert "\n" not in said
    for part in ("unknown key 'sed'; did you mean 'seed'", "n: 0", "did you mean 'mcq_matched_mismatched'"):
        assert part in said


def test_configuration_in_the_results_file_says_what_the_yaml_said(ncs):
    said = ncs.dump_config()["harness_heads"]
    assert said["seed"] == 20261 and said["data"] == {"path": "harness-heads/digits", "split": "evaluate"}
    json.dumps(said)


@pytest.fixture(scope="module")
def manager() -> Any:
    return TaskManager("ERROR", include_path=str(TASKS))  # reads every YAML of lmms-eval: seconds


def test_lmms_eval_runs_the_tasks_with_its_own_model(manager):
    """lmms-eval's TaskManager finds the YAMLs, its evaluator scores them; no class of ours but the task's."""
    results = simple_evaluate("dummy", tasks=["ncs_digits", "cers_digits"], task_manager=manager, limit=8)
    assert results is not None
    shown = results["results"]["ncs_digits"]
    assert shown["record,none"] == "8 of 200 items (below plan)"
    assert shown["accuracy matched,none"] == 0.25
    assert shown["accuracy matched_stderr,none"] == "N/A"
    assert results["results"]["cers_digits"]["accuracy oracle,none"] == 0.25
    assert len(results["samples"]["ncs_digits"]) == 8
    assert results["configs"]["ncs_digits"]["harness_heads"]["n"] == 200


def test_groups_pool_over_their_tasks(tmp_path):
    """Per-task rows stay; the group's row is their mean weighted by items."""
    for number, (n, seed) in enumerate(((4, 1), (12, 2))):
        (tmp_path / f"t{number}.yaml").write_text(
            f"task: t{number}\nclass: !function harness_heads.tasks.task.HeadTask\nrecipe: mcq_matched_mismatched\n"
            f"data: {{path: harness-heads/digits, split: choose}}\ncolumns: {{image: image, label: label}}\n"
            f"question: Which digit is shown?\nn: {n}\nseed: {seed}\n",
            encoding="utf-8",
        )
    (tmp_path / "g.yaml").write_text(
        "group: g\ntask: [t0, t1]\naggregate_metric_list:\n  - {metric: accuracy matched, weight_by_size: true, "
        "aggregation: !function harness_heads.tasks.pooling.stratified_mean}\n",
        encoding="utf-8",
    )
    manager = TaskManager("ERROR", include_path=str(tmp_path), include_defaults=False)
    results = simple_evaluate("dummy", tasks=["g"], task_manager=manager)
    assert results is not None
    assert results["results"]["t0"]["record,none"] == "4 of 4 items"
    assert results["groups"]["g"]["accuracy matched,none"] == 0.25


def test_stratified_mean():
    assert stratified_mean([1.0, 0.0], [3, 1]) == 0.75
    assert stratified_mean([1.0, 0.0], [3, 1], False) == 0.5
    assert stratified_mean([1.0, math.nan, "not estimable"], [3, 1, 9]) == 1.0
    assert stratified_mean(["no"], [2]) == "not estimable"


def test_groups_are_found(manager):
    assert {"pointing", "ood", "ood_cers", "ood_ncs", "grounding", "vqa"} <= set(manager.all_groups)
    assert "ncs_imagenet" in manager.all_tasks
