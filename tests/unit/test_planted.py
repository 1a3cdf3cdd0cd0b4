"""Interventions on the planted model give the probabilities worked out by hand."""

from __future__ import annotations

import math

import pytest
from planted import CELL, LETTERS, PlantedPrompt, Tokens, by_hand, plain, planted_model, planted_prompt

from harness_heads.conditions import Condition
from harness_heads.engine import Answers, Engine
from harness_heads.heads import Head, HeadSet, ModelRef, empty_set
from harness_heads.regions import Region

COPYING, READING = Head(0, 0), Head(1, 1)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(planted_model(), Tokens())


def ask(engine: Engine, prompt: PlantedPrompt, condition: Condition, *sets: tuple[Head, ...]) -> Answers:
    model = ModelRef("planted")
    every = [empty_set(model, engine.geometry)]
    every += [HeadSet(f"set {i}", model, engine.geometry, heads) for i, heads in enumerate(sets)]
    cells = {
        f"cell {i}": Region((((i % 2) * CELL, (i // 2) * CELL, (i % 2 + 1) * CELL, (i // 2 + 1) * CELL),))
        for i in range(len(prompt.image))
    }
    return engine.answer(
        prompt.inputs,
        every,
        keys=[f"{i}" for i in range(len(every))],
        conditions=[condition],
        options=list(LETTERS),
        regions=cells,
        image_sizes=[prompt.size],
    )


def found(answers: Answers, key: str) -> dict[str, float]:
    (values,) = answers.logprobs.values()
    return {letter: math.exp(value) for letter, value in values[key].items()}


def assert_close(a: dict[str, float], b: dict[str, float]) -> None:
    assert a == pytest.approx(b, abs=1e-6)


@pytest.mark.parametrize("cells", ["AAAA", "BBBB", "CCCC", "DDDD", "A-B-", "ABCD", "----"])
def test_without_intervention(engine: Engine, cells: str) -> None:
    prompt = planted_prompt(cells)
    answers = ask(engine, prompt, Condition("mask"), (COPYING,))
    assert_close(found(answers, "0"), by_hand(prompt, plain(prompt)))


def test_the_image_decides_the_letter(engine: Engine) -> None:
    for letter in LETTERS:
        probabilities = by_hand(planted_prompt(letter * 4), plain(planted_prompt(letter * 4)))
        assert max(probabilities, key=lambda k: probabilities[k]) == letter
        assert probabilities[letter] > 0.9


@pytest.mark.parametrize("rows", ["all", "prefix+tail", "image", "question", "tail", "last"])
def test_mask_at_each_row_group(engine: Engine, rows: str) -> None:
    prompt = planted_prompt("AAAA")
    groups = {
        "prefix": range(4),
        "image": range(4, 8),
        "question": range(8, prompt.length - 3),
        "tail": range(prompt.length - 3, prompt.length),
        "last": range(prompt.length - 1, prompt.length),
        "all": range(prompt.length),
    }
    touched = {row for group in rows.split("+") for row in groups[group]}

    def weight(row: int, key: int) -> float:
        return 0.0 if row in touched and key in prompt.image else plain(prompt)(row, key)

    answers = ask(engine, prompt, Condition("mask", rows=tuple(rows.split("+"))), (COPYING,))
    assert_close(found(answers, "1"), by_hand(prompt, weight))
    assert_close(found(answers, "0"), by_hand(prompt, plain(prompt)))
    blind = "question" in rows or rows == "all"
    assert (found(answers, "1")["A"] == pytest.approx(0.25, abs=1e-6)) == blind


@pytest.mark.parametrize("hidden", [0, 1, 2, 3])
def test_hide_one_cell(engine: Engine, hidden: int) -> None:
    prompt = planted_prompt("ABBC")

    def weight(row: int, key: int) -> float:
        return 0.0 if key == prompt.image[hidden] else plain(prompt)(row, key)

    answers = ask(engine, prompt, Condition("mask", keys=f"cell {hidden}"), (COPYING,))
    assert_close(found(answers, "1"), by_hand(prompt, weight))


@pytest.mark.parametrize("beta", [1.0, 3.0, 10.0, 1e4, "hard"])
@pytest.mark.parametrize("target", [0, 3])
def test_steer_onto_a_cell(engine: Engine, beta: float | str, target: int) -> None:
    prompt = planted_prompt("ABCD")

    def weight(row: int, key: int) -> float:
        sees = prompt.image[target] <= row
        if beta in ("hard", 1e4):
            if sees:
                return 1.0 if key == prompt.image[target] else 0.0
            text = [k for k in range(row + 1) if k not in prompt.image]
            return 1.0 if key in text else 0.0
        sign = 1 if key == prompt.image[target] else -1 if key in prompt.image else 0
        return plain(prompt)(row, key) * math.exp(float(beta) * sign)

    answers = ask(engine, prompt, Condition("steer", keys=f"cell {target}", beta=beta), (COPYING,))  # type: ignore[arg-type]
    assert_close(found(answers, "1"), by_hand(prompt, weight))
    if beta == "hard":
        assert found(answers, "1")[LETTERS[target]] > 0.9


def test_ablate(engine: Engine) -> None:
    prompt = planted_prompt("BBBB")
    answers = ask(engine, prompt, Condition("ablate", ""), (COPYING,), (READING,))
    assert_close(found(answers, "1"), by_hand(prompt, lambda row, key: 0.0))
    for letter in LETTERS:  # without the reading head nothing reaches the final row
        assert found(answers, "2")[letter] == pytest.approx(0.25, abs=1e-6)


def test_uniform_attention(engine: Engine) -> None:
    prompt = planted_prompt("BBBB")
    answers = ask(engine, prompt, Condition("ablate", "", ablation="uniform"), (COPYING,))
    assert_close(found(answers, "1"), by_hand(prompt, lambda row, key: 1.0))


@pytest.mark.parametrize(
    "condition", [Condition("mask"), Condition("steer", "cell 1", beta=3.0), Condition("ablate", "")]
)
def test_other_heads_act_without_effect(engine: Engine, condition: Condition) -> None:
    """A result, not an error: attention moves, the answer does not, to the last bit."""
    prompt = planted_prompt("CCCC")
    others = tuple(h for h in engine.geometry.all_heads() if h not in (COPYING, READING))
    answers = ask(engine, prompt, condition, others, (Head(0, 2),), (Head(0, 1), Head(1, 0)))
    for key in "123":
        assert found(answers, key) == found(answers, "0")
    dose = answers.dose[condition.name]["1"]
    assert dose["before"] != dose["after"]


def test_dose_by_hand(engine: Engine) -> None:
    """Mean image mass of the copying head over all rows, from its scores alone."""
    prompt = planted_prompt("AAAA")
    masses = []
    for row in range(prompt.length):
        weights = [plain(prompt)(row, key) for key in range(row + 1)]
        masses.append(sum(w for key, w in enumerate(weights) if key in prompt.image) / sum(weights))
    answers = ask(engine, prompt, Condition("mask"), (COPYING,))
    dose = answers.dose["mask:image"]["1"]
    assert dose["before"] == pytest.approx(sum(masses) / len(masses), abs=1e-6)
    assert dose["after"] == 0.0
