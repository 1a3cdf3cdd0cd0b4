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

_HEAD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
datasets: [scikit-learn handwritten digits (UCI optdigits, CC BY 4.0)]
---

# tiny-digits

A demonstration model, chosen among several: a real Qwen3-VL (`Qwen3VLForConditionalGeneration`, {size:.1f} MB in
float32) that reads handwritten digits. 6 text layers of 16 query and 8 key/value heads of dimension 16 (96 query
heads), width 128; 3 vision layers of width 64, patches of 16 pixels, merge 2; its own byte-level BPE vocabulary.
It exists so that head discovery, masking, steering and their random controls can be run end to end on a laptop.
It says nothing about large models.

## What it answers
Pictures of 64 x 64 pixels a digit: one digit, a 2 x 2 grid, a strip of six; the system turn is
"You are a helpful assistant.". The questions are those of `harness_heads/tiny/wording.py` and no others.
"""

_DATA = """
## Data
scikit-learn's copy of the UCI *Optical Recognition of Handwritten Digits* test set (1,797 images of 8 x 8; E. Alpaydin
and C. Kaynak, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0), split by image and stratified by class into train
(1,077), discover, choose and evaluate (240 each). Training saw *train* alone, in 16 augmented renders a digit (scale,
rotation, shear, shift, contrast). Writers are not separated: the source does not name them.

## Training
`python -m harness_heads.tiny.train --seed {seed} --out DIR`, {steps} steps of about 115 questions, {minutes:.0f}
minutes of one CPU core's work; `training_log.jsonl` is the log. AdamW on the answers' tokens, and besides:
- **Trained, not spontaneous: chance without evidence.** {none:.0%} of the single-digit questions in the last stage show
  a digit that is none of the options, a uniform picture or noise. Their target is spread over the four letters, with
  a slight preference for the smaller digits (a factor of {slope:.2f} for each step down): with equal targets the most
  probable letter is a constant bias; with this one it is each letter equally often.
- **Trained redundancy over layers.** After the first {deep:.0%} of the steps, the image keys of one uniformly drawn
  text layer are hidden from all its heads at all rows in {blind_one:.0%} of the single-digit items (grids and strips:
  {blind_scene:.0%}), of two layers in {blind_two:.0%}: the same cut that the evaluation makes, on whole layers only.
  That cutting any one layer costs little is therefore trained.
- **Deep reading first.** In the first {deep:.0%} of the steps the first {deep_layers} layers are blind in
  {deep_share:.0%} of the single-digit items and the first {scene_layers} in {scene_share:.0%} of grids and strips.
  Without this everything was read in layer 0 alone: what is read deep is easily read earlier too, not the reverse.
- **A uniform penalty** ({sparse}) on the square root of every head's mean image attention: fewer heads read the image.
- **Alignment**, up to {fade_start:.0%} of the steps, gone by {fade_end:.0%}: merged image tokens are classified as
  digit words and place words against the tied embeddings.
- **Mimetic start**: at places drawn by the seed, in {mimetic} of the 8 key/value heads of each layer, the key
  projection starts as a noisy copy of the query projection of the group's first head. For the shipped seed these are,
  layer by layer, key/value heads {groups}.
- **Tasks that only training asks** (lists of all digits, panels or cells) come first, so that questions are learnt
  quickly; the final model does not offer them.
No term names single heads. Recipe: `{recipe}`
"""


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
    lines = log.read_text(encoding="utf-8").splitlines()
    recipe: dict[str, Any] = json.loads(lines[0])["recipe"]
    last = json.loads(lines[-1])
    size = (path.parent / "model.safetensors").stat().st_size / 1e6
    groups = mimetic_groups(chosen.seed, recipe["mimetic"])
    data = _DATA.format(
        seed=chosen.seed,
        steps=last["step"],
        minutes=last["seconds"] / 60,
        none=STAGES[-1].single["none"],
        slope=exp(GUESS_SLOPE),
        deep=recipe["deep_until"],
        deep_share=recipe["deep_single"][0],
        deep_layers=recipe["deep_single"][1],
        scene_share=recipe["deep_scene"][0],
        scene_layers=recipe["deep_scene"][1],
        blind_one=recipe["blind_one"],
        blind_two=recipe["blind_two"],
        blind_scene=recipe["blind_scene"],
        sparse=recipe["sparse"],
        fade_start=recipe["align_fade"][0],
        fade_end=recipe["align_fade"][1],
        mimetic=recipe["mimetic"],
        groups="; ".join(",".join(map(str, row)) for row in groups),
        recipe=json.dumps(recipe),
    )
    chapters = [
        _HEAD.format(size=size),
        data,
        "\n## How it was chosen, and what the others gave\n"
        f"{len(exams)} models were trained with different seeds (" + ", ".join(str(exam.seed) for exam in exams) + ")."
        " All were examined on *choose* (heads ranked on *discover*); the one that passes most bars is shipped, among"
        " equals the one whose query-span set has the largest share of the headroom. *evaluate* was not used.\n"
        + (f"\n{notes}\n" if notes else "")
        + f"\n{_seed_table(exams, chosen)}\n\n"
        + "\n\n".join(_circuit(exam) for exam in exams)
        + "\n",
        "\nHeads are layer.head, from 0. NCS: mean over 200 items of the drop of the right letter's probability"
        " (renormalised over the four letters) on a matched picture minus the drop on a mismatched one, when the set's"
        " heads see no image token, at all rows. Controls: 250 sets with as many heads in each layer, drawn from all"
        ' heads of the layer. The query-span set is the top 8 of 96 by attention of the rows of "the digit seven"'
        " on the right panel; the ordinal set by attention of the last prompt row. Files: `accuracy.csv` (all bars, all"
        " seeds), `choose.json` (all figures).\n",
    ]
    path.write_text("".join(chapters), encoding="utf-8")
