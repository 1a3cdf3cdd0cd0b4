"""Questions, mixtures and batches: right answers, fair letters, seeded draws."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from harness_heads.tiny import wording
from harness_heads.tiny.architecture import HEADS, LAYERS
from harness_heads.tiny.augment import build_bank
from harness_heads.tiny.batches import blind_layers, blind_scattered, draw_cuts, draw_tasks, make_batch
from harness_heads.tiny.encode import Encoder
from harness_heads.tiny.items import MAKERS, Question, Scene
from harness_heads.tiny.processor import build_processor
from harness_heads.tiny.recipe import STAGES, Recipe, alignment, learning_rate, sparsity, stage_at

SINGLE = Scene(np.array([7]))
GRID = Scene(np.array([3, 1, 8, 5]), marked=2)
STRIP = Scene(np.array([4, 0, 9, 2, 7, 6]))


def options(question: Question) -> dict[str, str]:
    return dict(re.findall(r"^([A-D])\. (.+)$", question.text, flags=re.MULTILINE))


def ask(task: str, scene: Scene, seed: int) -> Question:
    return MAKERS[task](np.random.default_rng(seed), scene)


@pytest.mark.parametrize("seed", range(20))
def test_choices_are_right_and_distinct(seed: int) -> None:
    for task, scene in (("matched", SINGLE), ("named", GRID), ("marked", GRID), ("find", GRID), ("ordinal_mcq", STRIP)):
        question = ask(task, scene, seed)
        offered = options(question)
        assert len(set(offered.values())) == 4
        answer = offered[question.parts[0].text]
        if task == "find":
            digit = re.search(r"digit (\w+)\?", question.text)
            assert digit and wording.CELLS.index(answer) == list(GRID.labels).index(wording.DIGITS.index(digit[1]))
        elif task == "ordinal_mcq":
            panel = re.search(r"the (\w+) panel", question.text)
            assert panel and answer == wording.DIGITS[STRIP.labels[wording.ORDINALS.index(panel[1])]]
        elif task == "named":
            cell = re.search(r"the (\w+ \w+) cell", question.text)
            assert cell and answer == wording.DIGITS[GRID.labels[wording.CELLS.index(cell[1])]]
        else:
            assert answer == {"matched": "seven", "marked": "eight"}[task]


@pytest.mark.parametrize("seed", range(10))
def test_unanswerable_never_offers_the_digit_shown(seed: int) -> None:
    question = ask("none", SINGLE, seed)
    chances, offered = question.parts[0].letters, list(options(question).values())
    assert "seven" not in offered and chances is not None and sum(chances) == pytest.approx(1)
    smallest = min(offered, key=wording.DIGITS.index)
    assert max(chances) == chances[offered.index(smallest)] < 0.5


@pytest.mark.parametrize("seed", range(10))
def test_word_answers_are_right(seed: int) -> None:
    referring, ordinal = ask("referring", STRIP, seed), ask("ordinal", STRIP, seed)
    digit = wording.DIGITS.index(referring.text.removesuffix("?").split()[-1])
    assert STRIP.labels[wording.ORDINALS.index(referring.parts[0].text)] == digit
    assert wording.DIGITS[STRIP.labels[wording.ORDINALS.index(ordinal.text.split()[5])]] == ordinal.parts[0].text


def test_dense_answers_pair_every_key_with_its_own() -> None:
    question = ask("match", SINGLE, 3)
    offered = options(question)
    pairs = list(zip(question.parts[::2], question.parts[1::2], strict=True))
    assert len(pairs) == 4
    for key, letter in pairs:
        assert (key.weight, letter.weight) == (0.0, 1.0)
        assert offered[letter.text] == key.text.strip()
    for task, scene, places in (
        ("cells_of_digits", GRID, wording.CELLS),
        ("panels_of_digits", STRIP, wording.ORDINALS),
    ):
        parts = ask(task, scene, 3).parts
        assert len(parts) == 2 * len(scene.labels)
        for key, place in zip(parts[::2], parts[1::2], strict=True):
            assert wording.DIGITS[scene.labels[places.index(place.text.strip())]] == key.text.strip()
    for task, scene, places in (
        ("digits_of_cells", GRID, wording.CELLS),
        ("digits_of_panels", STRIP, wording.ORDINALS),
    ):
        parts = ask(task, scene, 3).parts
        for place, value in zip(parts[::2], parts[1::2], strict=True):
            assert wording.DIGITS[scene.labels[places.index(place.text.strip())]] == value.text.strip()


def test_scattered_heads_have_one_chance_in_every_layer() -> None:
    cut = blind_scattered(4000, 0.5, 0.6, np.random.default_rng(0)).float()
    assert (cut.sum((1, 2)) > 0).float().mean() == pytest.approx(0.5, abs=0.04)
    assert torch.allclose(cut.mean(0), torch.full((LAYERS, HEADS), 0.15), atol=0.03)


def test_letters_are_fair() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(MAKERS["matched"](rng, SINGLE).parts[0].text for _ in range(2000))
    assert all(430 < counts[letter] < 570 for letter in wording.LETTERS)


def test_unmarked_grids_are_not_asked_for_the_mark() -> None:
    assert ask("marked", Scene(GRID.labels), 0).task == "named"


def test_blind_layers_have_the_wanted_shares() -> None:
    cut = blind_layers(4000, 0.3, 0.1, np.random.default_rng(0))[..., 0]
    layers = torch.bincount(cut.sum(1), minlength=3) / 4000
    assert torch.allclose(layers, torch.tensor([0.6, 0.3, 0.1]), atol=0.03)
    single = cut[cut.sum(1) == 1].float().mean(0)
    assert torch.allclose(single, torch.full((LAYERS,), 1 / LAYERS), atol=0.05)


def test_first_layers_are_blind_at_their_times() -> None:
    recipe = Recipe(
        deep_until=30,
        deep_single=(1.0, 2),
        deep_scene=(1.0, 1),
        blind_one=0.0,
        blind_two=0.0,
        blind_scene=0.0,
        scatter=0.0,
        again_from=50,
        again_until=60,
        again_single=1.0,
        again_scene=1.0,
    )
    rng = np.random.default_rng(0)
    early = draw_cuts(recipe, 29, True, 50, rng)[..., 0]
    assert early[:, 0].all() and 10 < early[:, 1].sum() < 40 and not early[:, 2:].any()
    for step in (30, 49, 60):
        assert not draw_cuts(recipe, step, True, 5, rng).any()
        assert not draw_cuts(recipe, step, False, 5, rng).any()
    whole = replace(recipe, blind_one=1.0, settle_from=70)
    assert draw_cuts(whole, 69, True, 5, rng).any() and not draw_cuts(whole, 70, True, 5, rng).any()
    for single in (True, False):
        again = draw_cuts(recipe, 50, single, 5, rng)
        assert again[:, 0].all() and not again[:, 1:].any()


def test_draws_follow_the_shares() -> None:
    counts = Counter(draw_tasks({"a": 3.0, "b": 1.0}, 4000, np.random.default_rng(0)))
    assert 2850 < counts["a"] < 3150


def test_schedules() -> None:
    recipe = Recipe(
        steps=2100,
        warm_up=10,
        hold=500,
        cycle=1000,
        floor=0.1,
        align_fade=(500, 750),
        narrow_from=600,
        again_from=900,
        again_hold=1000,
        settle_from=2000,
    )
    assert learning_rate(recipe, 0) == pytest.approx(recipe.rate / 10)
    assert learning_rate(recipe, 400) == recipe.rate
    assert learning_rate(recipe, 750) == pytest.approx(recipe.rate * (0.1 + 0.9 * 0.5))
    assert learning_rate(recipe, 900) == learning_rate(recipe, 1000) == recipe.again_rate
    assert learning_rate(recipe, 1500) == pytest.approx(recipe.again_rate * (0.1 + 0.9 * 0.5))
    assert learning_rate(recipe, 2000) == recipe.settle_rate
    assert learning_rate(recipe, 2100) == pytest.approx(recipe.settle_rate * 0.1)
    assert [alignment(recipe, step) for step in (0, 500, 625, 750, 999)] == [1, 1, 0.5, 0, 0]
    assert [sparsity(recipe, step) for step in (599, 600, 899, 900, 2000)] == [
        0.0,
        recipe.sparse,
        recipe.sparse,
        recipe.again_sparse,
        recipe.settle_sparse,
    ]
    assert stage_at(0) is STAGES[0] and stage_at(Recipe().steps) is STAGES[-1]
    untils = [stage.until for stage in STAGES]
    assert untils == sorted(untils) and untils[-2] < Recipe().steps < untils[-1]
    known = set(MAKERS)
    for stage in STAGES:
        assert set(stage.single) <= known
        assert all(set(one.mixture) <= known for one in (*stage.grid, *stage.strip))


def test_batches_are_seeded_and_their_targets_spell_the_answers() -> None:
    processor = build_processor()
    encoder = Encoder(processor.tokenizer)
    bank = build_bank("train", 1, augment=True, rng=np.random.default_rng(0))
    recipe = Recipe(singles=6, grids=3, strips=3)
    one, other = (make_batch(recipe, recipe.steps - 1, bank, encoder, np.random.default_rng(9)) for _ in range(2))
    for group, twin, questions, targets in zip(one.groups, other.groups, one.questions, one.targets, strict=True):
        assert torch.equal(group.patches, twin.patches) and group.cut is not None
        assert group.cut.shape[:2] == (len(group.patches), LAYERS)
        for block, copy, asked, wanted in zip(group.blocks, twin.blocks, questions, targets, strict=True):
            assert torch.equal(block.ids, copy.ids) and len(asked) == len(group.patches) * block.each
            for i, question in enumerate(asked):
                spelled = encoder.text(wanted.token[wanted.question == i].tolist())
                assert spelled == "".join(part.text for part in question.parts if part.weight)
            inside = block.wanted() % block.ids.shape[1] < block.ids.shape[1] - 1  # the row after it is its own
            assert inside.sum() > len(asked) / 2
            assert torch.equal(block.ids.flatten()[block.wanted()[inside] + 1], wanted.token[inside])
