"""Generation under an intervention: equal to full recompute, per-row sets, padding, and identity without heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import Case, build

from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head, HeadSet, ModelRef, empty_set
from harness_heads.regions import Region

FAMILIES = ("qwen3_vl", "llava", "gemma3", "qwen3_5", "paligemma", "internvl")
STEPS = 5


def heads_of(engine: Engine, *pairs: tuple[int, int]) -> HeadSet:
    top = max(h.layer for h in engine.geometry.all_heads())
    chosen = tuple(Head(*p) for p in pairs) or (Head(1, 0), Head(1, 3), Head(top, 2))
    return HeadSet("some", ModelRef("tiny"), engine.geometry, tuple(dict.fromkeys(chosen)))


def generate(model: Any, inputs: dict[str, Any], **extra: Any) -> Any:
    return model.generate(
        **inputs,
        max_new_tokens=STEPS,
        min_new_tokens=STEPS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **extra,
    )


def longer(inputs: dict[str, Any], tokens: torch.Tensor) -> dict[str, Any]:
    """The prompt followed by generated tokens, as one prompt."""
    ids = inputs["input_ids"]
    out = dict(inputs)
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.shape == ids.shape:
            more = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}.get(key, torch.zeros_like(tokens))
            out[key] = torch.cat([value, more.to(value.dtype)], dim=1)
    return out


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "condition", [Condition("mask"), Condition("steer", "image", beta=2.0), Condition("ablate", "")]
)
def test_generation_equals_full_recompute(name: str, condition: Condition) -> None:
    case = build(name, dtype=torch.float64)
    engine = Engine(case.model, case.tokenizer, verify=False)
    heads = heads_of(engine)
    clean = generate(case.model, case.inputs)
    with engine.generating(heads, condition):
        made = generate(case.model, case.inputs)
    length = case.inputs["input_ids"].shape[1]
    tokens = made.sequences[:, length:]
    found = torch.stack(made.logits)[:, 0].double()
    if name == "paligemma":  # generated rows are causal, a prompt of the same tokens would see itself as prefix
        again = [recompute(engine, case, heads, condition, tokens[:, :n]) for n in (0,)]
        assert float((found[0] - again[0]).abs().max()) < 1e-5
    else:
        again = [recompute(engine, case, heads, condition, tokens[:, :n]) for n in range(STEPS)]
        # linear layers of the hybrid model change their chunks between prefill and decode, in float32
        assert float((found - torch.stack(again)).abs().max()) < (1e-4 if name == "qwen3_5" else 2e-5)
    effect = float((found - torch.stack(clean.logits)[:, 0]).abs().max())
    assert effect > 1e-2


def recompute(engine: Engine, case: Case, heads: HeadSet, condition: Condition, tokens: torch.Tensor) -> torch.Tensor:
    """Logits of the final row of prompt plus tokens in one forward, no cache."""
    inputs = longer(case.inputs, tokens) if tokens.shape[1] else case.inputs
    with torch.no_grad(), engine.generating(heads, condition):
        return case.model(**inputs, use_cache=False).logits[0, -1].double()


@pytest.mark.parametrize("name", FAMILIES)
def test_empty_set_is_bit_identical_and_the_model_is_left_as_it_was(name: str) -> None:
    case = build(name)
    engine = Engine(case.model, case.tokenizer, verify=False)
    nothing = empty_set(ModelRef("tiny"), engine.geometry)
    with torch.no_grad():
        forward = case.model(**case.inputs).logits
    written = generate(case.model, case.inputs)
    with torch.no_grad(), engine.generating(nothing, Condition("mask")):
        assert torch.equal(case.model(**case.inputs).logits, forward)
        inside = generate(case.model, case.inputs)
    assert torch.equal(inside.sequences, written.sequences)
    assert all(torch.equal(a, b) for a, b in zip(inside.logits, written.logits, strict=True))
    with engine.generating(heads_of(engine), Condition("mask")):
        generate(case.model, case.inputs)
    with torch.no_grad():
        assert torch.equal(case.model(**case.inputs).logits, forward)
    assert not case.model._forward_pre_hooks


@pytest.mark.parametrize("name", ["qwen3_vl", "llava"])
def test_rows_of_a_batch_have_their_own_sets(name: str) -> None:
    """Row b of a repeated prompt under set b generates what it generates alone."""
    case = build(name, dtype=torch.float64)
    engine = Engine(case.model, case.tokenizer, verify=False)
    sets = [heads_of(engine), empty_set(ModelRef("tiny"), engine.geometry), heads_of(engine, (0, 1), (2, 2))]
    batch = {k: v.repeat(3, *[1] * (v.ndim - 1)) for k, v in case.inputs.items()}
    region = {"box": Region(((0.0, 0.0, case.sizes[0][0] / 2, case.sizes[0][1]),))}
    condition = Condition("mask", "box")
    with engine.generating(sets, condition, regions=region, image_sizes=case.sizes) as watch:
        together = generate(case.model, batch)
    answered = Engine(case.model, case.tokenizer, verify=False).answer(
        case.inputs, sets, keys=["0", "1", "2"], conditions=[condition], options=["A"], regions=region,
        image_sizes=case.sizes,
    )  # fmt: skip
    assert watch.doses()[1] is None
    for row in (0, 2):
        assert watch.doses()[row] == pytest.approx(answered.dose["mask:box"][str(row)], abs=1e-6)
    for row, heads in enumerate(sets):
        with engine.generating(heads, condition, regions=region, image_sizes=case.sizes):
            alone = generate(case.model, case.inputs)
        assert torch.equal(together.sequences[row], alone.sequences[0])
        gap = (torch.stack(together.logits)[:, row] - torch.stack(alone.logits)[:, 0]).abs().max()
        assert float(gap) < 1e-5


def test_prompts_of_different_length_in_one_padded_batch() -> None:
    """Row groups and image tokens are found behind the padding of each row."""
    short, long = build("llava", seed=1, dtype=torch.float64), build("llava", seed=1, dtype=torch.float64)
    long.inputs = longer(short.inputs, torch.tensor([[33, 34, 35]]))
    long.inputs["input_ids"] = torch.cat([short.inputs["input_ids"][:, :-3], torch.tensor([[33, 34, 35, 4, 2, 5]])], 1)
    engine = Engine(short.model, short.tokenizer, verify=False)
    condition, heads = Condition("mask", rows=("question",)), heads_of(engine)
    pad = torch.zeros(1, 3, dtype=torch.long)
    batch = {
        "input_ids": torch.cat([torch.cat([pad, short.inputs["input_ids"]], 1), long.inputs["input_ids"]]),
        "attention_mask": torch.cat(
            [torch.cat([pad, short.inputs["attention_mask"]], 1), long.inputs["attention_mask"]]
        ),
        "pixel_values": short.inputs["pixel_values"].repeat(2, 1, 1, 1),
    }
    with engine.generating(heads, condition):
        together = generate(short.model, batch)
    for row, inputs in enumerate((short.inputs, long.inputs)):
        with engine.generating(heads, condition):
            alone = generate(short.model, inputs)
        gap = (torch.stack(together.logits)[:, row] - torch.stack(alone.logits)[:, 0]).abs().max()
        assert float(gap) < 1e-4


def test_phases() -> None:
    """Prefill leaves generated rows alone, decode leaves the prompt alone."""
    case = build("llava", dtype=torch.float64)
    engine = Engine(case.model, case.tokenizer, verify=False)
    heads = heads_of(engine)
    clean = generate(case.model, case.inputs)
    with engine.generating(heads, Condition("mask", phase="decode")):
        decode = generate(case.model, case.inputs)
    assert torch.equal(decode.logits[0], clean.logits[0])
    assert not torch.equal(decode.logits[1], clean.logits[1])
    with engine.generating(heads, Condition("mask", phase="prefill")):
        prefill = generate(case.model, case.inputs)
    with engine.generating(heads, Condition("mask")):
        both = generate(case.model, case.inputs)
    assert torch.equal(prefill.logits[0], both.logits[0])
    assert not torch.equal(prefill.logits[1], both.logits[1])


def test_what_generation_refuses() -> None:
    case = build("llava")
    engine = Engine(case.model, case.tokenizer, verify=False)
    heads = heads_of(engine)
    with pytest.raises(HarnessHeadsError, match="beam search"), engine.generating(heads, Condition("mask")):
        generate(case.model, case.inputs, num_beams=2)
    with pytest.raises(HarnessHeadsError, match="static caches"), engine.generating(heads, Condition("mask")):
        generate(case.model, case.inputs, cache_implementation="static")
    with (
        pytest.raises(HarnessHeadsError, match="no row was touched"),
        engine.generating(heads, Condition("mask", phase="decode")),
        torch.no_grad(),
    ):
        case.model(**case.inputs)
    with (
        pytest.raises(HarnessHeadsError, match="2 head sets for a batch of 1"),
        engine.generating([heads, heads], Condition("mask")),
    ):
        generate(case.model, case.inputs)
    with pytest.raises(HarnessHeadsError, match="gradients"), engine.generating(heads, Condition("mask")):
        case.model(**case.inputs)
    with (
        pytest.raises(HarnessHeadsError, match="another intervention is active"),
        engine.generating(heads, Condition("mask")),
        engine.generating(heads, Condition("mask")),
    ):
        pass


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5", "gemma3"])
def test_attention_that_does_not_move_is_an_error(name: str) -> None:
    """A push of 1e-9 is rounding; 1e-3 is small, and acts."""
    case = build(name, dtype=torch.float64)
    engine = Engine(case.model, case.tokenizer, verify=False)
    heads = heads_of(engine)
    with (
        pytest.raises(HarnessHeadsError, match="attention mass did not move in 1 of 1 prompts"),
        engine.generating(heads, Condition("steer", "image", beta=1e-9)),
    ):
        generate(case.model, case.inputs)
    with engine.generating(heads, Condition("steer", "image", beta=1e-3)):
        generate(case.model, case.inputs)


def test_one_row_that_does_not_move_is_found_among_others() -> None:
    case = build("llava", dtype=torch.float64)
    engine = Engine(case.model, case.tokenizer, verify=False)
    with engine.generating([heads_of(engine), heads_of(engine, (0, 1))], Condition("mask")) as watch, torch.no_grad():
        case.model(**{name: torch.cat([value, value]) for name, value in case.inputs.items()})
        assert watch.overwrite.moved == {0, 1}
        watch.overwrite.moved = {0}
        with pytest.raises(HarnessHeadsError, match="did not move in 1 of 2"):
            watch.check()
        watch.moved.clear()
        watch.overwrite.moved = {0, 1}
