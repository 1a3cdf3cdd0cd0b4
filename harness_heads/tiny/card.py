"""The model card and the accuracy table, rendered from the exams and the training log."""

import csv
import json
from math import exp
from pathlib import Path
from typing import Any

from .architecture import mimetic_groups
from .exam import Exam
from .items import GUESS_SLOPE
from .recipe import STAGES

_LEGEND = """
Heads are layer.head, from 0. NCS: mean over 200 items of the drop of the right letter's probability (renormalised over
the four letters) on a matched picture minus the drop on a mismatched one, when the set's heads see no image token, at
all rows. Controls: 250 sets (60 for the ordinal set) with as many heads in each layer, drawn from all heads of the
layer. The query-span set is the top 8 of 96 by attention of the rows of "the digit seven" on the right panel; the
ordinal set by attention of the last prompt row. Files: `accuracy.csv` (all bars, all seeds), `choose.json` (all
figures).
"""
_TEMPLATE = Path(__file__).with_name("card_template.md")


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def write_table(path: Path, exams: list[Exam]) -> None:
    """All bars of all seeds as CSV: one row a bar and seed."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("seed", "measure", "value", "wanted", "passed"))
        for exam in exams:
            for bar in exam.bars:
                writer.writerow((exam.seed, bar.name, f"{bar.value:.4f}", bar.wanted, "yes" if bar.passed else "no"))


def _seed_table(exams: list[Exam], chosen: Exam) -> str:
    names = [f"{exam.seed}" + (" (shipped)" if exam is chosen else "") for exam in exams]
    lines = ["| measure | wanted | seed " + " | seed ".join(names) + " |", "|---" * (2 + len(exams)) + "|"]
    for i, bar in enumerate(chosen.bars):
        cells = []
        for exam in exams:
            own = exam.bars[i]
            cells.append(f"{own.value:.3f}" + ("" if own.passed else " **fails**"))
        lines.append(f"| {bar.name} | {bar.wanted} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _circuit(exam: Exam) -> str:
    lines = [f"**Seed {exam.seed}**: headroom {exam.headroom:.3f}; kept with the image cut from all heads of layer"]
    lines.append("0 to 5: " + ", ".join(f"{share:.2f}" for share in exam.kept) + ".")
    for name, result in (("query-span", exam.referring), ("ordinal last-row", exam.ordinal_last)):
        heads = " ".join(f"{layer}.{head}" for layer, head in result.heads)
        lines.append(
            f"{name} set {heads}: NCS {result.ncs:.4f} [{result.low:.4f}, {result.high:.4f}], controls mean"
            f" {result.control_mean:.4f}, SD {result.control_sd:.4f}, max {result.control_max:.4f},"
            f" p {result.p:.4f} (first 20: {result.p_first:.3f})."
        )
    for name, letters in (("mismatched", exam.skills.mismatched), ("blank", exam.skills.blank)):
        mean = "/".join(_percent(p) for p in letters.mean)
        share = "/".join(_percent(p) for p in letters.argmax)
        lines.append(f"Letters on {name} pictures: mean P {mean} %, most probable in {share} % of items.")
    return "\n".join(lines)


def write_card(path: Path, log: Path, chosen: Exam, exams: list[Exam], notes: str = "") -> None:
    """Write the card.

    Args:
        path: File to write.
        log: The shipped seed's training log.
        chosen: Exam of the shipped seed.
        exams: Exams of all trained seeds.
        notes: Paragraphs about how the seeds came about, if the numbers alone do not say it.
    """
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    recipe: dict[str, Any] = [record["recipe"] for record in records if "recipe" in record][-1]
    groups = mimetic_groups(chosen.seed, recipe["mimetic"])
    facts = recipe | {
        "seed": chosen.seed,
        "size": (path.parent / "model.safetensors").stat().st_size / 1e6,
        "minutes": max(record.get("seconds", 0) for record in records) / 60,
        "none": STAGES[-1].single["none"],
        "slope": exp(GUESS_SLOPE),
        "deep_share": recipe["deep_single"][0],
        "scene_share": recipe["deep_scene"][0],
        "look": recipe["look_steps"],
        "fade_start": recipe["align_fade"][0],
        "fade_end": recipe["align_fade"][1],
        "groups": "; ".join(",".join(map(str, row)) for row in groups),
        "recipe": json.dumps(recipe),
    }
    chapters = [
        _TEMPLATE.read_text(encoding="utf-8").format(**facts),
        "\n## How it was chosen, and what the others gave\n"
        f"{len(exams)} models were trained with different seeds (" + ", ".join(str(exam.seed) for exam in exams) + ")."
        " All were examined on *choose* (heads ranked on *discover*); the one that passes most bars is shipped, among"
        " equals the one whose query-span set has the largest share of the headroom. *evaluate* was not used.\n"
        + (f"\n{notes}\n" if notes else "")
        + f"\n{_seed_table(exams, chosen)}\n\n"
        + "\n\n".join(_circuit(exam) for exam in exams)
        + "\n",
        _LEGEND,
    ]
    path.write_text("".join(chapters), encoding="utf-8")
