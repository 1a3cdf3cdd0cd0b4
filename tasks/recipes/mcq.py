"""``mcq_matched_mismatched``: necessity of a head set for naming what one image shows (NCS).

Four class names as options. Arms: *matched* shows the right class, *mismatched* a class that is none of the options
under the same question, options and right letter, *blank* a grey image (floor), and *text* asks for one of the
options by its name, so that the image is beside the point: with image keys masked it must not move, with text keys
masked it must (the proof that masking bites). What the text arm asks for is never what its image shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness_heads.tasks.balance import dealt
from harness_heads.tasks.items import Arm, Item
from harness_heads.tasks.pictures import blank
from harness_heads.tasks.prompts import lettered
from harness_heads.tasks.recipe import Option, Recipe, needs_question
from harness_heads.tasks.recipes.classes import ClassPool
from harness_heads.tasks.sources import Source
from harness_heads.tasks.spec import TaskSpec


def build(spec: TaskSpec, source: Source) -> list[Item]:
    """Build the items."""
    rng = np.random.default_rng(spec.seed)
    pool = ClassPool(source, spec, rng, synonyms=bool(RECIPE.option(spec, "synonyms")))
    correct = dealt(spec.n, 4, rng)
    items = []
    for index, target in enumerate(pool.targets(spec.n, rng)):
        *distractors, absent = pool.draw(4, [target], rng)
        options = [pool.name(key) for key in distractors]
        options.insert(correct[index], pool.name(target))
        matched = pool.next_picture(target)
        mismatched = pool.next_picture(absent)
        question = lettered(spec.question, options, spec.instruction)
        # ablation has no keys: there the two conditions are one
        masked, text_masked = (spec.condition("mask", "image"),), spec.condition("mask", "text")
        arms = {
            "matched": Arm(question, (matched,), conditions=masked),
            "mismatched": Arm(question, (mismatched,), conditions=masked),
            "blank": Arm(question, (blank(matched),)),
        }
        extra: dict[str, Any] = {"absent": pool.name(absent)}
        template = RECIPE.option(spec, "text_question")
        if template:
            asked = (correct[index] + 1 + (index // 4) % 3) % 4
            text = lettered(template.replace("{option}", options[asked]), options, spec.instruction)
            arms["text"] = Arm(text, (matched,), conditions=tuple(dict.fromkeys((*masked, text_masked))))
            extra["correct"] = {"text": asked}
        items.append(Item(tuple(options), correct[index], arms, matched["sha"], extra))
    return items


RECIPE = Recipe(
    "mcq_matched_mismatched",
    1,
    build,
    {"image": "the image", "label": "its class: a number with names, or a name"},
    options={
        "synonyms": Option(True, "whether commas in class names separate synonyms"),
        "text_question": Option("", "question of the text-solvable arm, with {option}; empty leaves the arm out"),
    },
    fields={"question": (), "text_question": ("option",)},
    check=lambda options, config: needs_question(config),
)
