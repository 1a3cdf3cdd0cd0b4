"""What the engine answers, refuses, and leaves unchanged; properties over random sets."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import Case, build

from harness_heads.conditions import Condition
from harness_heads.engine import Answers, Engine
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, empty_set
from harness_heads.regions import Region

MODEL = ModelRef("tiny")
BOX = {"box": Region(((0.0, 0.0, 8.0, 8.0),))}
CASES: dict[str, Case] = {}


def case_of(name: str = "qwen3_vl") -> Case:
    if name not in CASES:
        CASES[name] = build(name, dtype=torch.float64)
    return CASES[name]


def engine_of(name: str = "qwen3_vl", **options: Any) -> Engine:
    case = case_of(name)
    return Engine(case.model, case.tokenizer, **{"verify": False, **options})


def heads(engine: Engine, *pairs: tuple[int, int]) -> HeadSet:
    return HeadSet("some", MODEL, engine.geometry, tuple(Head(*p) for p in pairs))


def ask(engine: Engine, sets: list[HeadSet], *conditions: Condition, name: str = "qwen3_vl", **more: Any) -> Answers:
    case = case_of(name)
    return engine.answer(
        more.pop("inputs", case.inputs),
        [empty_set(MODEL, engine.geometry), *sets],
        keys=["empty", *(f"{i}" for i in range(len(sets)))],
        conditions=conditions,
        options=more.pop("options", ["A", "B", "C", "D"]),
        regions=BOX,
        image_sizes=case.sizes,
    )


def test_without_conditions_the_host_alone_answers() -> None:
    case, engine = case_of(), engine_of()
    answers = ask(engine, [heads(engine, (1, 0))])
    with torch.no_grad():
        logprobs = case.model(**case.inputs).logits[0, -1].log_softmax(-1)
    assert set(answers.logprobs) == {"none"} and set(answers.logprobs["none"]) == {"empty"}
    # A has the surface forms "A" and " A", C only one
    assert answers.logprobs["none"]["empty"]["A"] == pytest.approx(float(logprobs[[11, 12]].logsumexp(0)), abs=1e-12)
    assert answers.logprobs["none"]["empty"]["C"] == pytest.approx(float(logprobs[15]), abs=1e-12)
    total = math.fsum(math.exp(v) for v in answers.logprobs["none"]["empty"].values())
    assert answers.option_mass["none"]["empty"] == pytest.approx(total, abs=1e-12)


def test_the_empty_set_is_the_hosts_answer_in_every_condition() -> None:
    engine = engine_of()
    conditions = [Condition("mask"), Condition("mask", rows=("last",)), Condition("steer", "box", beta=3.0)]
    host = ask(engine, []).logprobs["none"]["empty"]
    answers = ask(engine, [heads(engine, (1, 0)), heads(engine, (3, 1), (2, 0))], *conditions)
    for condition in conditions:
        assert answers.logprobs[condition.name]["empty"] == pytest.approx(host, abs=1e-9)
        assert answers.logprobs[condition.name]["0"] != pytest.approx(host, abs=1e-5)
    # norms run in float32 even in a float64 model
    assert answers.numerics["baseline_gap"] < 1e-6
    assert answers.numerics["mode"] == "replay" and answers.numerics["dtype"] == "float64"


def test_dose_of_every_operation() -> None:
    engine = engine_of()
    sets = [heads(engine, (1, 0), (1, 1), (2, 3))]
    answers = ask(
        engine, sets, Condition("mask"), Condition("steer", "box", beta=1.0), Condition("steer", "box", beta=3.0),
        Condition("steer", "box", beta="hard"), Condition("ablate", ""), Condition("mask", keep_self=True),
    )  # fmt: skip
    dose = {name: values["0"] for name, values in answers.dose.items()}
    assert dose["mask:image"]["after"] == 0.0 < dose["mask:image"]["before"]
    assert 0.0 < dose["mask:image:keep_self"]["after"] < dose["mask:image"]["before"]
    assert (
        dose["steer:box:beta=1"]["before"]
        < dose["steer:box:beta=1"]["after"]
        < dose["steer:box:beta=3"]["after"]
        < dose["steer:box:beta=hard"]["after"]
    )
    assert dose["ablate:zero"]["after"] == 0.0
    assert "empty" not in answers.dose["mask:image"]


def test_bf16_round_makes_a_huge_beta_uniform_over_the_region() -> None:
    """The public code's arithmetic: scores vanish beside 9984, so all target tokens tie; float32 keeps their order."""
    engine = engine_of()
    sets = [heads(engine, (1, 0), (2, 1))]
    region = {"box": Region(((0.0, 0.0, 24.0, 8.0),))}  # three tokens
    names = [Condition("steer", "box", beta=b, numerics=n) for b, n in ((1e4, "bf16_round"), (1e4, "float32"))]
    hard = Condition("steer", "box", beta="hard")
    case = case_of()
    answers = engine.answer(
        case.inputs, [empty_set(MODEL, engine.geometry), *sets], keys=["e", "s"], conditions=[*names, hard],
        options=["A"], regions=region, image_sizes=case.sizes,
    )  # fmt: skip
    rounded, exact, limit = (answers.logprobs[c.name]["s"]["A"] for c in (*names, hard))
    assert exact == pytest.approx(limit, abs=1e-6)
    assert abs(rounded - exact) > 1e-3


def test_bf16_round_rounds_rows_before_the_image_too() -> None:
    """It is the arithmetic of whole rows: a replay may not begin at the first row that sees the region."""
    case, region = case_of(), {"box": Region(((0.0, 0.0, 24.0, 8.0),))}
    condition = Condition("steer", "box", beta=2.0, numerics="bf16_round")
    found = []
    for mode in ("replay", "batch"):
        engine = Engine(case.model, case.tokenizer, mode=mode)  # type: ignore[arg-type]
        sets = [empty_set(MODEL, engine.geometry), HeadSet("low", MODEL, engine.geometry, (Head(0, 0), Head(0, 1)))]
        answers = engine.answer(
            case.inputs, sets, keys=["e", "s"], conditions=[condition], options=["A"], regions=region,
            image_sizes=case.sizes,
        )  # fmt: skip
        found.append(answers.logprobs[condition.name]["s"]["A"])
    assert found[0] == pytest.approx(found[1], abs=2e-5)


def test_padding_of_the_prompt_is_taken_away() -> None:
    case, engine = case_of(), engine_of()
    ids = case.inputs["input_ids"]
    padded = {
        k: torch.cat([torch.zeros(1, 4, dtype=v.dtype), v], 1) if v.shape == ids.shape else v
        for k, v in case.inputs.items()
    }
    one = [heads(engine, (1, 0))]
    assert ask(engine, one, Condition("mask"), inputs=padded).logprobs == ask(engine, one, Condition("mask")).logprobs


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (Condition("mask", "cup"), "no region 'cup' .known: image, text, box"),
        (Condition("mask", phase="decode"), "options are read off the prompt"),
        (Condition("mask", rows=("question",), phase="decode"), "no row in scope"),
        (Condition("mask", rows=("prefix",)), "every key lies after the last row in scope"),
        (Condition("steer", "text", beta=1.0), "text stays untouched"),
        (Condition("steer", "box", beta="hard", numerics="bf16_round"), "beta must be finite"),
    ],
)
def test_conditions_that_cannot_act(condition: Condition, message: str) -> None:
    engine = engine_of()
    with pytest.raises(HarnessHeadsError, match=message):
        ask(engine, [heads(engine, (1, 0))], condition)


def test_mass_that_did_not_move() -> None:
    """A head that gives the image exactly no attention has nothing to cut: an error that names set and condition."""
    from planted import LETTERS, Tokens, planted_model, planted_prompt

    model, prompt = planted_model(), planted_prompt("ABCD")
    engine = Engine(model, Tokens(), verify=False)
    # image keys score so low in layer 0 that their weights underflow to zero
    model.get_decoder().layers[0].self_attn.k_norm.weight.data[:] = -500.0
    with pytest.raises(HarnessHeadsError, match=r"set 'some': attention mass did not move \(0 before"):
        engine.answer(
            prompt.inputs, [empty_set(MODEL, engine.geometry), heads(engine, (0, 0))], keys=["e", "s"],
            conditions=[Condition("mask", rows=("question", "tail"))], options=list(LETTERS), image_sizes=[prompt.size],
        )  # fmt: skip


def test_arguments_are_checked() -> None:
    case, engine = case_of(), engine_of()
    nothing = empty_set(MODEL, engine.geometry)
    with pytest.raises(HarnessHeadsError, match="no empty head set"):
        engine.answer(
            case.inputs, [heads(engine, (1, 0))], keys=["a"], conditions=[Condition("mask")], options=["A"],
            image_sizes=case.sizes,
        )  # fmt: skip
    with pytest.raises(HarnessHeadsError, match="1 keys for 2 head sets"):
        engine.answer(case.inputs, [nothing, nothing], keys=["a"], conditions=[], options=["A"])
    with pytest.raises(HarnessHeadsError, match="one prompt at a time, got a batch of 2"):
        engine.answer(
            {"input_ids": case.inputs["input_ids"].repeat(2, 1)}, [nothing], keys=["a"], conditions=[], options=["A"]
        )
    with pytest.raises(HarnessHeadsError, match="chunk=0 runs no head set"):
        Engine(case.model, case.tokenizer, chunk=0)
    wide = Geometry((9,) * 9)
    for pair, message in (((8, 0), "layer 8 is out of range"), ((1, 8), "head 8 is out of range")):
        foreign = HeadSet("foreign", MODEL, wide, (Head(*pair),))
        with pytest.raises(HarnessHeadsError, match=message):
            engine.answer(case.inputs, [nothing, foreign], keys=["a", "b"], conditions=[], options=["A"])
    hybrid = engine_of("qwen3_5")
    with pytest.raises(HarnessHeadsError, match="layer 0 has no softmax attention heads"):
        ask(hybrid, [HeadSet("linear", MODEL, wide, (Head(0, 0),))], Condition("mask"), name="qwen3_5")


def test_model_states_that_are_refused() -> None:
    case = build("llava")
    case.model.train()
    with pytest.raises(HarnessHeadsError, match="training mode"):
        Engine(case.model, case.tokenizer)
    case.model.eval()
    layer = case.model.get_decoder().layers[0]
    layer._compiled_call_impl = layer._call_impl  # what Module.compile leaves on a module
    with pytest.raises(HarnessHeadsError, match="compiled"):
        Engine(case.model, case.tokenizer)
    other = build("llava")
    other.model.get_decoder().config._attn_implementation_internal = "flex_attention"
    with pytest.raises(HarnessHeadsError, match="'flex_attention' is not supported"):
        Engine(other.model, other.tokenizer)


def some_sets() -> st.SearchStrategy[list[tuple[int, int]]]:
    pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return st.lists(pairs, min_size=1, max_size=6, unique=True)


@settings(deadline=None, max_examples=12)
@given(some_sets(), st.randoms(use_true_random=False), st.sampled_from([("all",), ("question",), ("last",)]))
def test_order_of_heads_does_not_matter(pairs: list[tuple[int, int]], random: Any, rows: tuple[str, ...]) -> None:
    engine = engine_of()
    shuffled = list(pairs)
    random.shuffle(shuffled)
    answers = ask(engine, [heads(engine, *pairs), heads(engine, *shuffled)], Condition("mask", rows=rows))
    values = answers.logprobs[Condition("mask", rows=rows).name]
    assert values["0"] == pytest.approx(values["1"], abs=1e-12)


@settings(deadline=None, max_examples=12)
@given(st.lists(some_sets(), min_size=2, max_size=5), st.integers(1, 4), st.sampled_from(["batch", "auto"]))
def test_company_in_the_batch_does_not_matter(sets: list[list[tuple[int, int]]], chunk: int, mode: Any) -> None:
    alone = ask(engine_of(), [heads(engine_of(), *sets[0])], Condition("mask", rows=("question",)))
    engine = engine_of(chunk=chunk, mode=mode)
    together = ask(engine, [heads(engine, *pairs) for pairs in sets], Condition("mask", rows=("question",)))
    name = "mask:image:rows=question"
    assert together.logprobs[name]["0"] == pytest.approx(alone.logprobs[name]["0"], abs=1e-6)
    assert together.dose[name]["0"] == pytest.approx(alone.dose[name]["0"], abs=1e-6)


@pytest.mark.parametrize("name", ["llava", "internvl", "ovis2", "idefics3"])
def test_all_heads_blind_equals_a_mask_that_drops_the_image(name: str) -> None:
    """Masking every head of every layer at all rows is the model's own attention mask without the image keys."""
    case, engine = case_of(name), engine_of(name)
    everything = HeadSet("all", MODEL, engine.geometry, engine.geometry.all_heads())
    answers = engine.answer(
        case.inputs, [empty_set(MODEL, engine.geometry), everything], keys=["e", "all"], conditions=[Condition("mask")],
        options=["A", "B", "C", "D"], image_sizes=case.sizes,
    )  # fmt: skip
    dropped = {**case.inputs, "attention_mask": (case.inputs["input_ids"] != 100).long()}
    length = dropped["input_ids"].shape[1]
    with torch.no_grad():
        logits = case.model(**dropped, position_ids=torch.arange(length)[None]).logits[0, -1]
    expected = float(logits.log_softmax(-1)[15])
    assert answers.logprobs["mask:image"]["all"]["C"] == pytest.approx(expected, abs=1e-6)
    assert answers.logprobs["mask:image"]["e"]["C"] != pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("mode", ["batch", "auto"])
@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5", "gemma3", "gemma4_shared", "paligemma", "internvl"])
def test_one_baseline_under_all_conditions(name: str, mode: Any) -> None:
    """The empty set answers the same whatever is done to the sets beside it: keys, rows, betas, operations."""
    engine = engine_of(name, mode=mode)
    top = max(head.layer for head in engine.geometry.all_heads())
    layers = sorted({head.layer for head in engine.geometry.all_heads()})
    conditions = [
        Condition(op, keys, rows, beta)
        for rows in (("all",), ("question",), ("last",))
        for op, keys, beta in (
            ("mask", "image", None), ("mask", "text", None), ("mask", "box", None),
            ("steer", "image", "hard"), ("steer", "box", 2.0), ("ablate", "", None),
        )
    ]  # fmt: skip
    answers = ask(engine, [heads(engine, (layers[0], 0), (top, 1)), heads(engine, (top, 2))], *conditions, name=name)
    assert len(answers.logprobs) == len(conditions)
    first, *others = (found["empty"] for found in answers.logprobs.values())
    for other in others:
        assert other == pytest.approx(first, abs=1e-9 if name != "qwen3_5" else 1e-5)
    assert answers.numerics["baseline_gap"] < 1e-5
