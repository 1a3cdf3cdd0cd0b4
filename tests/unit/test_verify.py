"""The self-check passes on sound engines and names what is wrong with unsound ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import build
from torch import Tensor

from harness_heads import engine as engine_module
from harness_heads import (
    engine_generate,
    engine_handlers,
    engine_prefix,
    engine_replay,
    engine_run,
    verify,
    verify_reference,
)
from harness_heads.attention import Call, forward_arguments, handling, installed
from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.engine_pairs import Pairs, Result, attend
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import family_of
from harness_heads.heads import Head, HeadSet, ModelRef, empty_set
from harness_heads.interventions import Action, resolve
from harness_heads.regions import Region
from harness_heads.verify import largest_gap
from harness_heads.verify_proof import Shown

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
    with pytest.raises(HarnessHeadsError, match="an untouched head's output differs"):
        run()


def test_a_mask_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(pairs: Pairs, action: Action) -> Result:
        result = attend(pairs, action)
        return Result(result.out, result.mass + 0.01)

    monkeypatch.setattr(engine_handlers, "attend", leaking)
    with pytest.raises(HarnessHeadsError, match="masked keys kept attention mass"):
        run("qwen3_vl", torch.float32, Condition("mask"))


def test_a_wrong_output_of_a_touched_head_is_found_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of bfloat16 kernels differ by more than the effect may be; one head on one input does not."""

    def scaled(pairs: Pairs, action: Action) -> Result:
        result = attend(pairs, action)
        return Result(result.out * 1.1, result.mass)

    for module in (engine_handlers, engine_prefix):
        monkeypatch.setattr(module, "attend", scaled)
    with pytest.raises(HarnessHeadsError, match="a touched head's output differs from the dense reference"):
        run("llava", torch.bfloat16, Condition("mask"))


def test_a_replay_that_begins_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_run, "first_difference", lambda action, clean, family: action.length - 1)
    with pytest.raises(HarnessHeadsError, match="differs from the dense reference"):
        run("qwen3_vl", torch.float32, Condition("mask"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_the_clean_pass_cannot_stand_for_are_found(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Logits may hide it, in 16 bits above all."""
    monkeypatch.setattr(engine_run, "first_difference", lambda action, clean, family: action.length - 1)
    monkeypatch.setattr(verify, "compared", lambda condition, name, *_: Shown(name, 0.0, 1.0, 0.1))
    with pytest.raises(HarnessHeadsError, match=r"rows before \d+ were taken from the clean pass, but differ"):
        run("qwen3_vl", dtype, Condition("mask"))


def test_a_replay_that_writes_nothing_is_found_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the effect on logits lies within their tolerance."""
    original = engine_prefix.ReplayHandler._overwrite

    def idle(self: engine_prefix.ReplayHandler, *args: Any) -> None:
        kept = None if args[-1] is None else args[-1].clone()
        original(self, *args)
        if kept is not None:
            args[-1].copy_(kept)

    monkeypatch.setattr(engine_prefix.ReplayHandler, "_overwrite", idle)
    with pytest.raises(HarnessHeadsError, match="a touched head's output differs from the dense reference"):
        run("qwen3_vl", torch.bfloat16, Condition("ablate", ""))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_left_out_between_layers_is_found(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Deepstack features: no layer alone shows that they are missing."""
    monkeypatch.setattr(engine_replay, "_between", lambda clean, index, hidden, first_row: hidden)
    with pytest.raises(HarnessHeadsError, match="rows replayed for the empty set differ from the clean pass's"):
        run("qwen3_vl", dtype, Condition("mask"))


@pytest.mark.parametrize("name", ["qwen3_vl", "gemma3"])
def test_a_wrong_reading_of_the_models_own_mask_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Engine and reference share it, and the host's kernel does not."""
    original = Call.visible

    def blind(self: Call, rows: Tensor, batch: int = 0) -> Tensor:
        seen = original(self, rows, batch).clone()
        seen[:, 0] = False
        return seen

    monkeypatch.setattr(Call, "visible", blind)
    with pytest.raises(HarnessHeadsError, match="differs from the dense reference"):
        run(name, torch.bfloat16, Condition("mask"))


@pytest.mark.parametrize("chunk", [None, 1])
def test_sets_that_change_places_are_found(monkeypatch: pytest.MonkeyPatch, chunk: int | None) -> None:
    """What each set reads is held to its own reference, on the pass that is scored."""
    case = build("qwen3_vl")
    engine = Engine(case.model, case.tokenizer, chunk=chunk)
    sets = [
        HeadSet("upper", MODEL, engine.geometry, (Head(2, 0), Head(2, 1))),
        empty_set(MODEL, engine.geometry),
        HeadSet("lower", MODEL, engine.geometry, (Head(0, 0), Head(0, 1))),
    ]

    def ask() -> None:
        engine.answer(
            case.inputs, sets, keys=["u", "e", "l"], conditions=CONDITIONS, options=["A"], image_sizes=case.sizes
        )

    original = engine_run._jobs

    def swapped(*args: Any) -> Any:
        jobs, rows = original(*args)
        return jobs, {name: runs[::-1] for name, runs in rows.items()}

    with monkeypatch.context() as patch:
        patch.setattr(engine_run, "_jobs", swapped)
        with pytest.raises(HarnessHeadsError, match="dense reference"):
            ask()
    ask()
    assert engine.proof is not None and engine.proof.layers == (0, 2)


def test_outcomes_that_are_shifted_among_later_sets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no set is left whose layers were not tried."""
    case = build("qwen3_vl")
    engine = Engine(case.model, case.tokenizer)
    sets = [empty_set(MODEL, engine.geometry)]
    sets += [HeadSet(str(i), MODEL, engine.geometry, (Head(1, i), Head(2, i))) for i in range(4)]
    original = engine_run._jobs

    def shifted(*args: Any) -> Any:
        jobs, rows = original(*args)
        return jobs, {name: [run if run < 3 else run - 1 for run in runs] for name, runs in rows.items()}

    monkeypatch.setattr(engine_run, "_jobs", shifted)
    with pytest.raises(HarnessHeadsError, match="dense reference"):
        engine.answer(
            case.inputs, sets, keys=list("eabcd"), conditions=CONDITIONS, options=["A"], image_sizes=case.sizes
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_zero_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    original = Pairs.zeros
    monkeypatch.setattr(Pairs, "zeros", lambda self: original(self) + 1e-6)
    with pytest.raises(HarnessHeadsError, match="a touched head's output differs"):
        run("qwen3_vl", dtype, Condition("ablate", ""))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_wrong_dose_is_found(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    original = engine_module.doses

    def shifted(*args: Any) -> Any:
        return {key: {**dose, when: dose[when] + 0.01} for key, dose in original(*args).items()}

    monkeypatch.setattr(engine_module, "doses", shifted)
    with pytest.raises(HarnessHeadsError, match=f"its dose {when} is"):
        run("llava", torch.float32, Condition("steer", "image", beta=1.0))


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
    assert engine.proof.heads == 6  # the last set is looked at too: shifted outcomes would show there


def conditions_tried(engine: Engine) -> list[str]:
    return [one.name for one in engine.ledger.shown]


def test_every_kind_of_condition_is_proved_and_regions_share_one() -> None:
    """Row groups, keys, strengths and options are kinds of their own, whichever prompt brings them."""
    case = build("qwen3_vl")
    engine = Engine(case.model, case.tokenizer)
    sets = [empty_set(MODEL, engine.geometry), HeadSet("some", MODEL, engine.geometry, (Head(1, 0), Head(2, 3)))]
    boxes = {"left": Region(((0.0, 0.0, 8.0, 8.0),)), "right": Region(((8.0, 0.0, 16.0, 8.0),))}

    def ask(*conditions: Condition) -> None:
        engine.answer(
            case.inputs, sets, keys=["e", "s"], conditions=conditions, options=["A"], regions=boxes,
            image_sizes=case.sizes,
        )  # fmt: skip

    ask(Condition("mask", "left"), Condition("mask", "right"))
    assert conditions_tried(engine) == ["mask:left"]
    ask(Condition("mask", "right"), Condition("mask", "image"), Condition("mask", "text", ("last",)))
    assert conditions_tried(engine)[1:] == ["mask:image", "mask:text:rows=last"]
    ask(Condition("mask", "image", keep_self=True), Condition("ablate", "", ablation="uniform"))
    assert len(conditions_tried(engine)) == 5
    assert engine.proof is not None and set(engine.proof.conditions) == set(conditions_tried(engine))
    other = HeadSet("other", MODEL, engine.geometry, (Head(0, 1), Head(1, 1)))
    sets.append(other)
    engine.answer(
        case.inputs, sets, keys=["e", "s", "o"], conditions=[Condition("mask", "left")], options=["A"], regions=boxes,
        image_sizes=case.sizes,
    )  # fmt: skip
    assert engine.proof.layers == (0, 1, 2)


def test_an_effect_within_the_tolerance_proves_little_and_is_said() -> None:
    strong = run("llava", torch.float32, Condition("steer", "image", beta=2.0)).proof
    weak = run("llava", torch.bfloat16, Condition("steer", "image", beta=1e-2)).proof
    assert strong is not None and strong.weak == ()
    assert weak is not None and weak.weak == ("steer:image:beta=0.01",) and weak.to_dict()["weak"] == list(weak.weak)


def test_gaps_of_large_vocabularies_and_of_no_numbers() -> None:
    """Where nothing is likely the likeliest are compared; a not-a-number is never a small gap."""
    flat = torch.full((200_000,), 1.0).log_softmax(-1)
    assert float(flat.max()) < -10
    assert largest_gap(flat, flat) == 0.0
    shifted = flat.clone()
    shifted[7] += 0.5
    assert largest_gap(shifted, flat) == pytest.approx(0.5)
    for found, reference in ((flat * float("nan"), flat), (flat, flat * float("nan"))):
        assert not largest_gap(found, reference) <= 1e9


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("llava", torch.float64)]
    + [(name, torch.float32) for name in ("qwen3_vl", "gemma3", "qwen3_5", "paligemma", "internvl", "phi4_multimodal")],
)
def test_generation_is_proved(name: str, dtype: torch.dtype) -> None:
    """Prompt and decode step, one row per set that names a new layer, once per kind of condition."""
    case = build(name, dtype=dtype)
    engine = Engine(case.model, case.tokenizer)
    softmax = sorted({head.layer for head in engine.geometry.all_heads()})
    one = HeadSet("one", MODEL, engine.geometry, (Head(softmax[0], 0), Head(softmax[0], 1)))
    two = HeadSet("two", MODEL, engine.geometry, (Head(softmax[-1], 2),))
    steps = []

    def generate(**inputs: Any) -> Any:
        steps.append(inputs["input_ids"].shape[0])
        return case.model.generate(**inputs)

    for condition in (Condition("mask"), Condition("steer", "image", beta=2.0), Condition("ablate", "")):
        for _ in range(2):
            engine.prove_generation(generate, case.inputs, [one, two, one], condition)
    assert steps == [2] * 12
    proof = engine.proof
    assert proof is not None and proof.conditions[0] == "mask:image (generated)"
    assert proof.layers == tuple({softmax[0], softmax[-1]})
    assert not proof.untouched_bit_equal  # looked at on prompts alone
    assert proof.local_gap < 1e-5
    assert proof.weak == () and proof.reference_gap < (1e-5 if dtype == torch.float64 else 1e-3) < proof.effect


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_generation_that_stops_acting_is_found(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    case = build("llava", dtype=dtype)
    engine = Engine(case.model, case.tokenizer)
    some = HeadSet("some", MODEL, engine.geometry, (Head(1, 0), Head(1, 3)))
    original = engine_generate.Watch.attend

    def prompt_alone(self: engine_generate.Watch, layer: int, call: Any) -> Any:
        return original(self, layer, call) if self.prefill else call.base()

    monkeypatch.setattr(engine_generate.Watch, "attend", prompt_alone)
    with pytest.raises(HarnessHeadsError, match="a touched head's output differs from the dense reference"):
        engine.prove_generation(case.model.generate, case.inputs, [some], Condition("mask"))
    unchecked = Engine(case.model, case.tokenizer, verify=False)
    unchecked.prove_generation(case.model.generate, case.inputs, [some], Condition("mask"))


def test_the_reference_in_blocks_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of rows bound its memory and change nothing."""
    case = build("gemma3", dtype=torch.float64)
    family, found = family_of(case.model), []
    layout = Engine(case.model, case.tokenizer).layout(case.inputs, case.sizes)
    action = resolve(Condition("steer", "image", beta=2.0), layout, {})
    row = verify_reference.DenseRow(frozenset({Head(0, 1), Head(2, 0)}), action)
    for size in (1024, 3):
        monkeypatch.setattr(verify_reference, "BLOCK", size)
        dense = verify_reference.Dense([row], reads=[row])
        with torch.no_grad(), installed(case.model, family), handling(dense):
            logits = case.model(**forward_arguments(case.model, case.inputs)).logits
        found.append((logits, torch.tensor([*dense.mass, *dense.read])))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    assert (found[0][1] > 0.1).all()
