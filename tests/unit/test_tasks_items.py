"""Items: the same everywhere, balanced in every short prefix, unambiguous, shown as the embedded model knows them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_yaml import config_of

from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import item_id, probe_from_dict
from harness_heads.tasks.balance import crossed, dealt, others
from harness_heads.tasks.data import open_data
from harness_heads.tasks.items import to_docs
from harness_heads.tasks.pictures import paint
from harness_heads.tasks.recipes import RECIPES
from harness_heads.tasks.sources import DigitsSource
from harness_heads.tasks.spec import TaskSpec, spec_from_config
from harness_heads.tiny import data as tiny
from harness_heads.tiny import wording

DIGIT_TASKS = ("ncs_digits", "cers_digits", "ncs_grid_digits", "ncs_strip_digits")


def spec_of(name: str) -> TaskSpec:
    return spec_from_config(config_of(name))


def build(spec: TaskSpec) -> list[dict[str, Any]]:
    recipe = RECIPES[spec.recipe]
    return to_docs(recipe.build(spec, open_data(spec.data, spec.task)), spec, recipe.version)


@pytest.fixture(scope="module", params=DIGIT_TASKS)
def built(request):
    spec = spec_of(request.param)
    return spec, build(spec)


def test_every_prefix_of_a_multiple_of_four_is_balanced_over_letters(built):
    _, docs = built
    for end in range(4, len(docs) + 1, 4):
        assert set(Counter(doc["correct"] for doc in docs[:end]).values()) == {end // 4}


def test_every_prefix_of_a_multiple_of_four_is_balanced_over_cells():
    for name in ("cers_digits", "ncs_grid_digits"):
        docs = build(spec_of(name))
        for end in range(4, len(docs) + 1, 4):
            for role in ("correct", "distractor"):
                assert set(Counter(doc["extra"]["cell"][role] for doc in docs[:end]).values()) == {end // 4}


def test_letters_and_cells_are_crossed():
    docs = build(spec_of("cers_digits"))[:96]
    pairs = Counter((doc["correct"], doc["extra"]["cell"]["correct"]) for doc in docs)
    assert set(pairs.values()) == {6} and len(pairs) == 16


@given(st.integers(1, 60), st.integers(2, 6), st.integers(0, 999))
def test_schedules(n, k, seed):
    first = dealt(n, k, np.random.default_rng(seed))
    second = crossed(first, k, np.random.default_rng(seed + 1))
    third = others(first, k)
    assert len(first) == len(second) == len(third) == n
    for values in (first, second, third):
        for start in range(0, n - k + 1, k):
            assert sorted(values[start : start + k]) == list(range(k))
    assert all(a != b for a, b in zip(first, third, strict=True))


def test_items_are_the_same_twice_and_plain_json(built):
    spec, docs = built
    again = build(spec)
    assert json.loads(json.dumps(docs)) == again


def test_another_seed_gives_other_items_and_a_longer_task_other_ids_only_at_its_end(built):
    spec, docs = built
    other = {doc["item"] for doc in build(replace(spec, seed=spec.seed + 1))}
    assert len({doc["item"] for doc in docs} & other) <= len(docs) // 50


def test_ids_are_unique_and_follow_the_content(built):
    spec, docs = built
    assert len({doc["item"] for doc in docs}) == spec.n
    changed = build(replace(spec, instruction="Answer with a letter."))
    assert not {doc["item"] for doc in docs} & {doc["item"] for doc in changed}


def test_equal_items_are_refused():
    spec = replace(spec_of("ncs_digits"), n=4)
    recipe = RECIPES[spec.recipe]
    items = recipe.build(spec, DigitsSource("evaluate"))
    with pytest.raises(HarnessHeadsError, match="items 0 and 1 are the same"):
        to_docs([items[0], items[0]], spec, 1)


def test_options_are_four_different_words(built):
    _, docs = built
    for doc in docs:
        assert len(set(doc["options"])) == 4
        assert set(doc["options"]) <= set(wording.DIGITS)


def test_mismatched_images_show_none_of_the_options():
    spec = spec_of("ncs_digits")
    source = DigitsSource("evaluate")
    for doc in build(spec):
        [shown] = doc["arms"]["mismatched"]["pictures"]
        [matched] = doc["arms"]["matched"]["pictures"]
        assert wording.DIGITS[source.cell(shown["row"], "label")] not in doc["options"]
        assert wording.DIGITS[source.cell(matched["row"], "label")] == doc["options"][doc["correct"]]


def test_the_text_arm_asks_for_another_option_than_its_image_shows():
    for doc in build(spec_of("ncs_digits")):
        asked = doc["extra"]["correct"]["text"]
        assert asked != doc["correct"]
        question = doc["arms"]["text"]["text"].splitlines()[0]
        assert question == wording.text_solvable(wording.DIGITS.index(doc["options"][asked]))


def test_wording_is_the_embedded_models():
    options = ("one", "two", "three", "four")
    for doc in build(spec_of("ncs_digits"))[:8]:
        options = tuple(doc["options"])
        assert doc["arms"]["matched"]["text"] == wording.mcq(wording.SINGLE, options)
    for name, arm, question in (
        ("cers_digits", "oracle", wording.named_cell),
        ("ncs_grid_digits", "grid", wording.named_cell),
        ("ncs_strip_digits", "grid", wording.ordinal),
    ):
        for doc in build(spec_of(name))[:8]:
            cell = doc["extra"]["cell"]["correct"]
            assert doc["arms"][arm]["text"] == wording.mcq(question(cell), tuple(doc["options"]))
    for doc in build(spec_of("cers_digits"))[:4]:
        assert doc["arms"]["grid"]["text"] == wording.mcq(wording.SINGLE, tuple(doc["options"]))


def test_pictures_are_the_embedded_models():
    source = DigitsSource("evaluate")
    for name, make in (("cers_digits", tiny.grid), ("ncs_strip_digits", tiny.strip)):
        for doc in build(spec_of(name))[:4]:
            [picture] = doc["arms"]["grid"]["pictures"]
            cells = [source.image(cell["row"], "image") for cell in picture["cells"]]
            assert paint(picture, source).tobytes() == make(cells).tobytes()
            [grey] = doc["arms"]["blank"]["pictures"]
            assert paint(grey, source).tobytes() == tiny.blank(paint(picture, source).size).tobytes()


def test_the_right_digit_stands_in_the_named_cell():
    source = DigitsSource("evaluate")
    for name in ("cers_digits", "ncs_grid_digits", "ncs_strip_digits"):
        for doc in build(spec_of(name)):
            [picture] = doc["arms"]["grid"]["pictures"]
            words = [wording.DIGITS[source.cell(cell["row"], "label")] for cell in picture["cells"]]
            cells = doc["extra"]["cell"]
            assert words[cells["correct"]] == doc["options"][doc["correct"]]
            assert words[cells["distractor"]] == doc["options"][doc["extra"]["distractor_option"]]
            assert len(set(words)) == len(words)


def test_regions_are_the_cells():
    doc = build(spec_of("cers_digits"))[0]
    probe = probe_from_dict(doc["arms"]["grid"]["probe"])
    boxes = {0: (0, 0, 64, 64), 1: (64, 0, 128, 64), 2: (0, 64, 64, 128), 3: (64, 64, 128, 128)}
    for role, cell in doc["extra"]["cell"].items():
        assert probe.regions[role].boxes == (boxes[cell],)
    assert [c.name for c in probe.conditions] == ["steer:correct:beta=hard", "steer:distractor:beta=hard"]


def test_erased_pixels_are_the_cells_pixels():
    source = DigitsSource("evaluate")
    for doc in build(spec_of("ncs_grid_digits"))[:6]:
        whole = np.asarray(paint(doc["arms"]["grid"]["pictures"][0], source)).astype(int)
        for role in ("correct", "distractor"):
            cut = np.asarray(paint(doc["arms"][f"pixels_{role}"]["pictures"][0], source)).astype(int)
            row, column = divmod(doc["extra"]["cell"][role], 2)
            inside = np.zeros(whole.shape[:2], bool)
            inside[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64] = True
            assert (cut[inside] == 127).all()
            assert (cut[~inside] == whole[~inside]).all()


def test_grids_with_options_from_outside_cannot_be_solved_by_elimination():
    """The distractor's cell stays an option, two options are in no cell: who is blind to one cell has three left."""
    spec, source = spec_of("ncs_grid_digits"), DigitsSource("evaluate")
    assert spec.options["outside"] == 2
    for doc in build(spec):
        [picture] = doc["arms"]["grid"]["pictures"]
        words = [wording.DIGITS[source.cell(cell["row"], "label")] for cell in picture["cells"]]
        assert len(set(doc["options"]) & set(words)) == 2
        assert doc["extra"]["cells"] == [
            "ABCD"[doc["options"].index(word)] if word in doc["options"] else None for word in words
        ]
    for doc in build(replace(spec, options={**spec.options, "outside": 0})):
        [picture] = doc["arms"]["grid"]["pictures"]
        assert set(doc["options"]) == {wording.DIGITS[source.cell(c["row"], "label")] for c in picture["cells"]}


def test_audited_items_name_the_arms_that_decide():
    spec = spec_of("ncs_grid_digits")
    assert (spec.n, spec.options["audited"]) == (160, 120)
    for name, seen in (("ncs_grid_digits", "grid"), ("cers_digits", "oracle")):
        spec = spec_of(name)
        doc = build(replace(spec, n=8, options={**spec.options, "audited": 4}))[0]
        rule = doc["extra"]["audit"]
        assert rule == {"keep": 4, "seen": seen, "unseen": ["blank", "pixels_correct"]}
        assert {rule["seen"], *rule["unseen"]} <= set(doc["arms"])
        # what decides is measured without intervention
        assert all(doc["arms"][arm]["probe"]["conditions"] == [] for arm in rule["unseen"])
    assert all("audit" not in doc["extra"] for doc in build(spec_of("cers_digits"))[:4])


def test_only_the_evaluation_split_is_used_by_default():
    for name in DIGIT_TASKS:
        assert spec_of(name).data.split == "evaluate"
    assert spec_of("ncs_digits_choose").data.split == "choose"
    with pytest.raises(HarnessHeadsError, match="unknown split 'evaluat'"):
        DigitsSource("evaluat")


@pytest.mark.parametrize(("name", "digest"), [("ncs_digits", "46841c033b02a10f"), ("cers_digits", "03017608672d22b9")])
def test_published_items_stay_the_same(name, digest):
    """Plans and reports of the embedded model speak of these items; who changes them raises the recipe's version."""
    assert item_id({"items": [doc["item"] for doc in build(spec_of(name))]}) == digest
