"""The choice of a seed, and the card and table that tell it."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

from harness_heads.tiny import WEIGHTS
from harness_heads.tiny.card import write_card, write_table
from harness_heads.tiny.choose import best, seed_of
from harness_heads.tiny.exam import Bar, Exam, SetResult
from harness_heads.tiny.recipe import Recipe
from harness_heads.tiny.skills import Letters, Skills

FAIR = Letters(0.25, (0.24, 0.26, 0.25, 0.25), (0.2, 0.3, 0.25, 0.25))


def exam(seed: int, passed: tuple[bool, bool], ncs: float) -> Exam:
    result = SetResult([(0, 1), (2, 3)], ncs, ncs - 0.01, ncs + 0.01, 0.02, 0.01, 0.05, 0.04, 1 / 251, 1 / 21)
    bars = [Bar("matched", 0.991, ">= 0.97", passed[0]), Bar("find", 0.71, ">= 0.95", passed[1])]
    skills = Skills({"matched": 0.991, "find": 0.71}, FAIR, FAIR, 0.98)
    return Exam(seed, 0.75, [0.5, 0.9, 1.0, 1.0, 1.0, 1.0], result, replace(result, ncs=0.001), skills, bars)


def test_best_passes_most_bars_then_has_the_largest_share() -> None:
    weak, strong, narrow = exam(1, (True, False), 0.5), exam(2, (True, True), 0.3), exam(3, (True, True), 0.2)
    assert best([weak, narrow, strong]) is strong
    assert best([weak, narrow]) is narrow


def test_exams_survive_json() -> None:
    one = exam(4, (True, False), 0.3)
    assert Exam.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_table_has_every_bar_of_every_seed(tmp_path: Path) -> None:
    exams = [exam(1, (True, False), 0.5), exam(2, (True, True), 0.3)]
    write_table(tmp_path / "table.csv", exams)
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["measure"], row["passed"]) for row in rows] == [
        ("1", "matched", "yes"),
        ("1", "find", "no"),
        ("2", "matched", "yes"),
        ("2", "find", "yes"),
    ]
    assert {row["value"] for row in rows} == {"0.9910", "0.7100"}


def test_card_tells_all_seeds_and_every_failure(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    records = [{"seed": 2, "from_step": 0, "recipe": asdict(Recipe())}, {"step": 9, "seconds": 600}]
    log.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"0" * 6_060_000)
    exams = [exam(1, (True, False), 0.5), exam(2, (True, True), 0.3)]
    write_card(tmp_path / "README.md", log, exams[1], exams, notes="Two pilots came before.")
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert seed_of(tmp_path) == 2
    assert "2 models were trained with different seeds (1, 2)" in text
    assert "| find | >= 0.95 | 0.710 **fails** | 0.710 |" in text
    assert "seed 1 | seed 2 (shipped)" in text and "Two pilots came before." in text
    assert "6.1 MB" in text and "10 minutes" in text and "CC BY 4.0" in text
    assert "{" not in text.replace(json.dumps(asdict(Recipe())), "")


def test_shipped_card_and_table_agree() -> None:
    exams = [Exam.from_json(values) for values in json.loads((WEIGHTS / "choose.json").read_text(encoding="utf-8"))]
    assert len(exams) >= 3
    with (WEIGHTS / "accuracy.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(int(r["seed"]), r["measure"], r["passed"] == "yes") for r in rows] == [
        (one.seed, bar.name, bar.passed) for one in exams for bar in one.bars
    ]
    shipped = seed_of_log()
    card = (WEIGHTS / "README.md").read_text(encoding="utf-8")
    assert f"seed {shipped} (shipped)" in card
    # a seed may be shipped against the counting rule, but never silently
    assert (best(exams).seed == shipped) != ("**Not by the counting rule.**" in card)


def seed_of_log() -> int:
    first = (WEIGHTS / "training_log.jsonl").read_text(encoding="utf-8").splitlines()[0]
    return int(json.loads(first)["seed"])
