"""The self-check passes on sound engines and names what is wrong with unsound ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import build

from harness_heads import engine_handlers, engine_prefix, engine_run
from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.engine_pairs import Pairs, Result, attend
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head, HeadSet, ModelRef, empty_set
from harness_heads.interventions import Action

MODEL = ModelRef("tiny")
CONDITIONS = (Condition("mask"), Condition("steer", "image", beta=2.0), Condition("ablate", ""))


def run(name: str = "qwen3_vl", dtype: torch.dtype = torch.float32, *conditions: Condition) -> Engine:
    case = build(name, dtype=dtype)
    engine = Engine(case.model, case.tokenizer)
    top = max(h.layer for h in engine.geometry.all_heads())
    some = HeadSet("some", MODEL, engine.geometry, (Head(1, 0), Head(1, 3), Head(top, 2)))
    engine.answer(
        case.inputs, [empty_set(MODEL, engine.geometry), some], keys=["e", "s"], conditions=conditions or CONDITIONS,
        options=["A", "B"], image_sizes=case.sizes,
    )  # fmt: skip
    return engine


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5", "gemma3", "paligemma", "internvl"])
def test_proof_of_a_sound_engine(name: str) -> None:
    proof = run(name).proof
    assert proof is not None
    assert proof.untouched_bit_equal
    assert proof.reference_gap < 1e-4 < proof.effect
    assert proof.heads == 3 and len(proof.layers) == 2
    assert proof.conditions == ("mask:image", "steer:image:beta=2", "ablate:zero")
    assert proof.to_dict()["dtype"] == "float32"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_proof_in_half_precision(dtype: torch.dtype) -> None:
    """Held to the precision of the model's own dtype."""
    proof = run("llava", dtype).proof
    assert proof is not None and proof.reference_gap <= proof.tolerance


def test_an_intervention_on_the_wrong_head_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = engine_handlers.groups_by_layer

    def shifted(*args: Any) -> Any:
        plan = original(*args)
        for groups in plan.values():
            for group in groups:
                group.heads = (group.heads + 1) % 4
        return plan

    monkeypatch.setattr(engine_handlers, "groups_by_layer", shifted)
    with pytest.raises(HarnessHeadsError, match="a head outside the set changed"):
        run()


def test_a_mask_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(pairs: Pairs, action: Action) -> Result:
        result = attend(pairs, action)
        return Result(result.out, result.mass + 0.01)

    monkeypatch.setattr(engine_handlers, "attend", leaking)
    with pytest.raises(HarnessHeadsError, match="masked keys kept attention mass"):
        run("qwen3_vl", torch.float32, Condition("mask"))


def test_a_replay_that_begins_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_run, "first_difference", lambda action, clean, family: action.length - 1)
    with pytest.raises(HarnessHeadsError, match="differs from the dense reference"):
        run("qwen3_vl", torch.float32, Condition("mask"))


def test_a_replay_without_its_prefix_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = engine_prefix.Prefixed.whole

    def forgetful(self: engine_prefix.Prefixed) -> Any:
        key, value = original(self)
        return key, value.clone().index_fill_(2, torch.tensor([0]), 0.0)

    monkeypatch.setattr(engine_prefix.Prefixed, "whole", forgetful)
    with pytest.raises(HarnessHeadsError, match="differs from the dense reference"):
        run("qwen3_vl", torch.float32, Condition("mask"))


def test_only_the_first_prompt_is_checked() -> None:
    case = build("llava")
    engine = Engine(case.model, case.tokenizer)
    some = HeadSet("some", MODEL, engine.geometry, (Head(1, 0),))
    arguments: dict[str, Any] = {
        "keys": ["e", "s"], "conditions": CONDITIONS[:1], "options": ["A"], "image_sizes": case.sizes,
    }  # fmt: skip
    sets = [empty_set(MODEL, engine.geometry), some]
    engine.answer(case.inputs, sets, **arguments)
    first = engine.proof
    engine.answer(case.inputs, sets, **arguments)
    assert engine.proof == first and len(engine.ledger.shown) == 1
    unchecked = Engine(case.model, case.tokenizer, verify=False)
    unchecked.answer(case.inputs, sets, **arguments)
    assert unchecked.proof is None


def test_every_layer_that_a_set_names_is_proved() -> None:
    """A control set in other layers than the first set's is proved too."""
    case = build("qwen3_vl")
    engine = Engine(case.model, case.tokenizer)
    some = HeadSet("some", MODEL, engine.geometry, (Head(1, 0), Head(1, 3)))
    other = HeadSet("other", MODEL, engine.geometry, (Head(0, 2), Head(2, 1)))
    same = HeadSet("same", MODEL, engine.geometry, (Head(0, 1), Head(1, 2)))
    engine.answer(
        case.inputs, [empty_set(MODEL, engine.geometry), some, other, same], keys=["e", "s", "o", "m"],
        conditions=CONDITIONS, options=["A", "B"], image_sizes=case.sizes,
    )  # fmt: skip
    assert engine.proof is not None
    assert engine.proof.layers == (0, 1, 2)
    assert engine.proof.heads == 4
