"""Training resumes exactly; measures and bars say what they should; the shipped folder is a real model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen3VLForConditionalGeneration

from harness_heads.tiny import WEIGHTS, data, wording
from harness_heads.tiny.architecture import HEADS, LAYERS
from harness_heads.tiny.augment import build_bank
from harness_heads.tiny.encode import PREFIX, TAIL
from harness_heads.tiny.exam import Amounts, SetResult, judge, load
from harness_heads.tiny.measure import Necessity, layer_matched, make_pairs, rank_scores, top
from harness_heads.tiny.recipe import Recipe
from harness_heads.tiny.skills import Letters, Skills
from harness_heads.tiny.train import Run, _changed

SMALL = Recipe(
    steps=6,
    look_steps=2,
    look_singles=2,
    look_scenes=1,
    singles=4,
    first_singles=4,
    grids=2,
    strips=2,
    renders=1,
    warm_up=2,
    narrow_from=3,
)


def weights(run: Run) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in run.model.parameters()])


def test_a_stopped_run_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    unbroken = Run(3, SMALL, tmp_path / "one")
    unbroken.resume()
    start = weights(unbroken)
    unbroken.train()
    stopped = Run(3, SMALL, tmp_path / "two")
    stopped.resume()
    stopped.train(until=4)
    again = Run(3, SMALL, tmp_path / "two")
    again.resume()
    assert again.step == 4
    again.train()
    assert torch.equal(weights(unbroken), weights(again))
    assert (weights(unbroken) - start).abs().max() > 1e-3
    saved = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path / "two" / "model").state_dict()
    assert all(torch.equal(saved[name], value) for name, value in again.model.state_dict().items())
    names = {path.name for path in (tmp_path / "two").rglob("*") if path.is_file()}
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl", ".pth"))]
    first = json.loads((tmp_path / "two" / "log.jsonl").read_text().splitlines()[0])
    assert first["seed"] == 3 and first["recipe"]["steps"] == 6


def test_settings_change_the_recipe_and_unknown_ones_are_refused() -> None:
    assert _changed(Recipe(), ["steps=7", "sparse=0.5"]) == replace(Recipe(), steps=7, sparse=0.5)
    with pytest.raises(SystemExit, match="unknown setting 'stepz'"):
        _changed(Recipe(), ["stepz=7"])


def test_layer_matched_sets_keep_the_counts_and_differ() -> None:
    rng = np.random.default_rng(0)
    heads = [(0, 1), (0, 2), (3, 15), (5, 0)]
    drawn = [layer_matched(heads, rng) for _ in range(300)]
    assert all([layer for layer, _ in one] == [0, 0, 3, 5] for one in drawn)
    assert all(len(set(one)) == 4 and set(one) != set(heads) for one in drawn)
    assert {head for one in drawn for layer, head in one if layer == 0} == set(range(HEADS))
    full = [(2, head) for head in range(HEADS - 1)]
    assert set(layer_matched(full, rng)) != set(full)


def test_top_orders_by_score_then_place() -> None:
    scores = np.zeros((LAYERS, HEADS))
    scores[4, 2], scores[1, 3] = 2.0, 1.0
    assert top(scores, 4) == [(4, 2), (1, 3), (0, 0), (0, 1)]


def result(ncs: float, controls: float, p: float) -> SetResult:
    return SetResult([(0, 0)], ncs, ncs, ncs, controls, 0.01, controls, controls, p, 1 / 21)


def verdicts(**changes: object) -> dict[str, bool]:
    fair = Letters(0.25, (0.25,) * 4, (0.25,) * 4)
    names = ("matched", "text", "named", "marked", "find", "referring", "ordinal", "ordinal_mcq", "box_grid")
    skills = Skills({**dict.fromkeys(names, 0.99), "box_strip": 0.99}, fair, fair, 0.99)
    given = {
        "skills": skills,
        "kept": [0.5] * 6,
        "headroom": 0.7,
        "referring": result(0.3, 0.02, 1 / 251),
        "last": result(0.001, 0.0, 0.01),
        "amounts": Amounts(),
    }
    return {bar.name: bar.passed for bar in judge(**{**given, **changes})}  # type: ignore[arg-type]


def test_good_figures_pass_every_bar() -> None:
    assert all(verdicts().values()) and len(verdicts()) == 22


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"kept": [0.5, 0.33] + [0.9] * 4}, {"headroom kept, worst layer cut"}),
        ({"referring": result(0.3, 0.07, 1 / 251)}, {"query-span set: NCS / |control mean|"}),
        ({"referring": result(0.3, -0.07, 1 / 251)}, {"query-span set: NCS / |control mean|"}),
        ({"referring": result(0.3, 0.02, 3 / 251)}, {"query-span set: p, 250 controls"}),
        ({"referring": result(0.06, 0.001, 1 / 251)}, {"query-span set: NCS / headroom"}),
        ({"last": result(0.03, 0.0, 0.04)}, {"ordinal, last row: NCS"}),
        ({"last": result(0.03, 0.0, 0.06)}, set()),
    ],
)
def test_each_bar_fails_on_its_own(changes: dict[str, object], failing: set[str]) -> None:
    assert {name for name, passed in verdicts(**changes).items() if not passed} == failing


def test_shipped_folder_is_small_and_safe() -> None:
    files = [path for path in WEIGHTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if path.suffix == ".safetensors") <= 8e6
    assert not [path for path in files if path.suffix in {".bin", ".pt", ".pth", ".pkl", ".npy"}]
    text = "".join(path.read_text(encoding="utf-8") for path in files if path.suffix in {".json", ".md"})
    assert str(Path.home()) + "/" not in text and "/tmp/" not in text


@pytest.fixture(scope="module")
def shipped() -> tuple[Qwen3VLForConditionalGeneration, AutoProcessor]:
    model = AutoModelForImageTextToText.from_pretrained(WEIGHTS, dtype=torch.float32).eval()
    return model, AutoProcessor.from_pretrained(WEIGHTS)


def test_shipped_model_answers_through_transformers(
    shipped: tuple[Qwen3VLForConditionalGeneration, AutoProcessor],
) -> None:
    """Training digits only; the held-out figures are in the card."""
    model, processor = shipped
    assert type(model) is Qwen3VLForConditionalGeneration
    assert (model.config.text_config.num_hidden_layers, model.config.text_config.num_attention_heads) == (LAYERS, HEADS)
    images, labels = data.digits("train")
    rng, right = np.random.default_rng(0), 0
    for image, label in zip(images[:40], labels[:40], strict=True):
        others = rng.permutation([digit for digit in range(10) if digit != label])[:3].tolist()
        order = rng.permutation([int(label), *others]).tolist()
        a, b, c, d = (wording.DIGITS[digit] for digit in order)
        question = wording.mcq(wording.SINGLE, (a, b, c, d))
        text = PREFIX + "<|image_pad|><|vision_end|>" + question + TAIL
        inputs = processor(text=[text], images=[data.render_cell(image, rng)], return_tensors="pt")
        answer = model.generate(**inputs, max_new_tokens=8)[0, inputs.input_ids.shape[1] :]
        right += processor.decode(answer) == wording.LETTERS[order.index(int(label))] + "<|im_end|>"
    assert right >= 36


def test_necessity_is_zero_for_no_heads_and_the_headroom_at_most_for_all() -> None:
    lean, encoder = load(WEIGHTS)
    bank = build_bank("train", 1, augment=False, rng=np.random.default_rng(0))
    necessity = Necessity(lean, encoder, make_pairs(bank, encoder, 24, np.random.default_rng(1)))
    every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    assert np.abs(necessity.items([])).max() < 1e-6
    assert necessity.headroom > 0.4
    # blind, the matched and the mismatched picture are the same to the text model
    assert necessity.score(every) == pytest.approx(necessity.headroom, abs=1e-5)
    scores = rank_scores(lean, encoder, bank, 4, np.random.default_rng(2))
    assert scores.referring.shape == (LAYERS, HEADS) and 0 < scores.referring.max() <= 1
