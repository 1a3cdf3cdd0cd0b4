"""Examine trained seeds on *choose*, ship one: ``python -m harness_heads.tiny.choose RUN [RUN ...] --ship``.

The rule: the seed that passes most bars; among equals, the one whose query-span set has the largest share of the
headroom. All seeds' figures go into the shipped folder, whatever they show. An exam is kept in its run's folder
(``exam.json``) and not repeated.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch

from . import WEIGHTS
from .card import write_card, write_table
from .exam import Amounts, Exam, examine

MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "processor_config.json",
    "chat_template.jinja",
)


def seed_of(run: Path) -> int:
    """Training seed of a run's folder."""
    return int(json.loads((run / "log.jsonl").read_text(encoding="utf-8").splitlines()[0])["seed"])


def best(exams: list[Exam]) -> Exam:
    """The exam to ship, by the rule above."""
    return max(exams, key=lambda e: (sum(bar.passed for bar in e.bars), e.referring.ncs / e.headroom))


def ship(run: Path, chosen: Exam, exams: list[Exam], folder: Path, notes: str) -> None:
    """Copy a run's model and log into the shipped folder and write card and table."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODEL_FILES:
        shutil.copyfile(run / "model" / name, folder / name)
    shutil.copyfile(run / "log.jsonl", folder / "training_log.jsonl")
    write_table(folder / "accuracy.csv", exams)
    write_card(folder / "README.md", folder / "training_log.jsonl", chosen, exams, notes)
    text = json.dumps([exam.to_json() for exam in exams], indent=1)
    (folder / "choose.json").write_text(text + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m harness_heads.tiny.choose", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders written by harness_heads.tiny.train")
    parser.add_argument("--ship", action="store_true", help="write the chosen model into the package")
    parser.add_argument("--quick", action="store_true", help="a rough look: few items, 20 controls")
    parser.add_argument("--notes", type=Path, help="text for the card: how these runs came about")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    amounts = Amounts(120, 40, 80, 20, 20, 20, 20) if given.quick else Amounts()
    exams = {}
    for run in given.runs:
        saved = run / "exam.json"
        if saved.exists() and not given.quick:
            exam = Exam.from_json(json.loads(saved.read_text(encoding="utf-8")))
        else:
            exam = examine(run / "model", seed_of(run), amounts)
            if not given.quick:
                saved.write_text(json.dumps(exam.to_json()) + "\n", encoding="utf-8")
        exams[run] = exam
        failed = [f"{bar.name} {bar.value:.3f} ({bar.wanted})" for bar in exam.bars if not bar.passed]
        print(
            f"seed {exam.seed}: {len(exam.bars) - len(failed)} of {len(exam.bars)} bars; failed: {failed}", flush=True
        )
        print(json.dumps(exam.to_json()), flush=True)
    chosen = best(list(exams.values()))
    print(f"chosen: seed {chosen.seed}")
    if given.ship:
        run = next(run for run, exam in exams.items() if exam is chosen)
        notes = given.notes.read_text(encoding="utf-8").strip() if given.notes else ""
        ship(run, chosen, list(exams.values()), WEIGHTS, notes)


if __name__ == "__main__":
    main()
