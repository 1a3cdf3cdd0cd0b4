"""What the engine cannot watch, or what could only be a silent no-op, is refused with a sentence that names it."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from test_engine_generate import generate, heads_of
from tiny_models import IMAGE, VISION_END, VISION_START, Case, Words, build
from torch import nn

from harness_heads import attention
from harness_heads.conditions import Condition, condition_from_dict
from harness_heads.engine import Engine
from harness_heads.engine_handlers import moved_beside
from harness_heads.engine_options import option_tokens
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import family_of
from harness_heads.heads import Head, HeadSet, ModelRef, empty_set
from harness_heads.interventions import resolve
from harness_heads.library import Mask, Steer, intervene, read
from harness_heads.regions import Region

MODEL = ModelRef("tiny")


def engine_of(case: Case) -> Engine:
    return Engine(case.model, case.tokenizer, verify=False)


def refused(case: Case, match: str, **options: Any) -> None:
    """``generate`` with these options under a mask raises, and leaves the model as it was."""
    engine = engine_of(case)
    with pytest.raises(HarnessHeadsError, match=match), engine.generating(heads_of(engine), Condition("mask")):
        generate(case.model, case.inputs, **options)
    assert not case.model._forward_pre_hooks


def test_a_wrapper_around_a_model() -> None:
    class Wrapper(nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model, self.config = model, model.config

    with pytest.raises(HarnessHeadsError, match=r"Wrapper is no transformers model.*get_base_model"):
        family_of(Wrapper(build("llava").model))


def test_inputs_of_another_model() -> None:
    case = build("llava")
    with pytest.raises(HarnessHeadsError, match="takes no 'input_features'"):
        read(case.model, {**case.inputs, "input_features": torch.zeros(1, 4)}, processor=case.tokenizer)


def test_a_context_in_which_nothing_ran() -> None:
    case, other = build("llava"), build("llava")
    engine = engine_of(case)
    with (
        pytest.raises(HarnessHeadsError, match="no forward of this model ran"),
        engine.generating(heads_of(engine), Condition("mask")),
        torch.no_grad(),
    ):
        other.model(**other.inputs)


def test_a_cache_that_was_filled_outside() -> None:
    case = build("qwen3_vl")
    engine = engine_of(case)
    with torch.no_grad():
        cache = case.model(**case.inputs, use_cache=True).past_key_values
        with (
            pytest.raises(HarnessHeadsError, match="open the context before the prompt is read"),
            engine.generating(heads_of(engine), Condition("mask")),
        ):
            case.model(input_ids=torch.tensor([[33]]), past_key_values=cache)


def test_an_image_token_that_the_model_generates_is_text() -> None:
    case = build("llava")
    engine = engine_of(case)
    image = engine.family.image_token(case.model.config)
    with torch.no_grad(), engine.generating(heads_of(engine), Condition("mask")):
        cache = case.model(**case.inputs, use_cache=True).past_key_values
        first = case.model(input_ids=torch.tensor([[image]]), past_key_values=cache).logits
    assert bool(first.isfinite().all())


def test_a_new_image_on_a_filled_cache() -> None:
    case = build("llava")
    engine = engine_of(case)
    with (
        pytest.raises(HarnessHeadsError, match="a new image on a filled cache"),
        engine.generating(heads_of(engine), Condition("mask")),
        torch.no_grad(),
    ):
        cache = case.model(**case.inputs, use_cache=True).past_key_values
        case.model(input_ids=torch.tensor([[VISION_START, IMAGE, VISION_END]]), past_key_values=cache)


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("leave out use_cache=False", {"use_cache": False}),
        ("a prompt in chunks", {"prefill_chunk_size": 4}),
        ("beam search", {"num_beams": 2}),
    ],
)
def test_ways_of_generating(match: str, options: dict[str, Any]) -> None:
    refused(build("llava"), match, **options)


def test_a_hybrid_text_model_in_any_family_replays_full_rows() -> None:
    case = build("qwen3_5")
    family = family_of(case.model)
    assert replace(family, replay="suffix").replay_way(case.model) == "full"
    assert family_of(build("llava").model).replay_way(build("llava").model) == "suffix"


def test_training_mode_of_a_part() -> None:
    case = build("llava")
    family_of(case.model).layers(case.model)[1].train()
    with pytest.raises(HarnessHeadsError, match="training mode"):
        engine_of(case)


def test_the_users_own_patch_is_put_back_and_no_module_stays_registered() -> None:
    case = build("qwen3_vl")
    engine = engine_of(case)
    before = len(attention._LAYERS)
    own = case.model.base_model.get_image_features
    calls = []

    @wraps(own)
    def patched(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return own(*args, **kwargs)

    case.model.base_model.get_image_features = patched
    with engine.generating(heads_of(engine), Condition("mask")):
        generate(case.model, case.inputs)
    assert case.model.base_model.get_image_features is patched and calls
    assert len(attention._LAYERS) == before
    assert "_prepare_generation_config" not in vars(case.model)


def test_doses_need_the_same_pixels() -> None:
    """Two rows of the same words and other pictures are two prompts: one is no clean pass of the other."""
    case = build("llava")
    engine = engine_of(case)
    sets = [empty_set(MODEL, engine.geometry), heads_of(engine)]
    batch = {name: torch.cat([value, value]) for name, value in case.inputs.items()}
    for shown, known in ((batch["pixel_values"], True), (batch["pixel_values"].flip(-1) * 0.5, False)):
        batch["pixel_values"] = torch.cat([batch["pixel_values"][:1], shown[1:]])
        with engine.generating(sets, Condition("mask")) as watch, torch.no_grad():
            case.model(**batch)
        assert (watch.doses()[1] is not None) == known


def test_reading_one_prompt_without_its_padding() -> None:
    case = build("llava", dtype=torch.float64)
    plain = read(case.model, case.inputs, rows=(-1,), processor=case.tokenizer)
    padded = {
        **case.inputs,
        "input_ids": torch.cat([torch.zeros(1, 3, dtype=torch.long), case.inputs["input_ids"]], 1),
        "attention_mask": torch.cat([torch.zeros(1, 3, dtype=torch.long), case.inputs["attention_mask"]], 1),
    }
    torch.testing.assert_close(read(case.model, padded, rows="last", processor=case.tokenizer), plain)
    length = case.inputs["input_ids"].shape[1]
    torch.testing.assert_close(read(case.model, padded, rows=(length - 1,), processor=case.tokenizer), plain)
    with pytest.raises(HarnessHeadsError, match=f"row {length} is not in this prompt of {length} tokens"):
        read(case.model, padded, rows=(length,))
    with pytest.raises(HarnessHeadsError, match=r"row 1\.5 is no whole number"):
        read(case.model, padded, rows=(1.5,))  # type: ignore[arg-type]
    with pytest.raises(HarnessHeadsError, match="a batch of 2"):
        read(case.model, {name: torch.cat([value, value]) for name, value in case.inputs.items()})


@pytest.mark.parametrize("name", ["image", "text", ""])
def test_names_that_no_region_can_have(name: str) -> None:
    case = build("llava")
    engine = engine_of(case)
    box = {name: Region(((0.0, 0.0, 8.0, 8.0),))}
    sets = [empty_set(MODEL, engine.geometry), heads_of(engine)]
    with pytest.raises(HarnessHeadsError, match="a region cannot be called"):
        engine.answer(
            case.inputs, sets, keys=["e", "s"], conditions=[Condition("mask")], options=["A"], regions=box,
            image_sizes=case.sizes,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("match", "fields"),
    [
        ("beta='2' is no number", {"op": "steer", "beta": "2"}),
        ("beta=True is no number", {"op": "steer", "beta": True}),
        ("not finite", {"op": "steer", "beta": float("inf")}),
        ("beta 0 moves no attention", {"op": "steer", "beta": 0.0}),
        ("is no float32 score", {"op": "steer", "beta": -1e39}),
        ("is no float32 score", {"op": "steer", "beta": 10**400}),
        ("keep_self is an option of mask", {"op": "steer", "beta": 1.0, "keep_self": True}),
        ("numerics concern scores", {"op": "ablate", "keys": "", "numerics": "bf16_round"}),
        ("ablation=uniform is an option of ablate", {"op": "mask", "ablation": "uniform"}),
        (r"rows='last' is no tuple", {"op": "mask", "rows": "last"}),
        (r"rows=\['last'\] is no tuple", {"op": "mask", "rows": ["last"]}),
    ],
)
def test_conditions_that_would_not_act_as_they_read(match: str, fields: dict[str, Any]) -> None:
    with pytest.raises(HarnessHeadsError, match=match):
        Condition(**fields)


def test_two_betas_never_share_a_name() -> None:
    names = {Condition("steer", "image", beta=beta).name for beta in (1.0, 1.0000001, 1 / 3, 0.3333333, 1e4)}
    assert len(names) == 5 and "steer:image:beta=10000" in names and "steer:image:beta=1" in names


def test_rows_of_a_stored_condition_are_not_read_letter_by_letter() -> None:
    with pytest.raises(HarnessHeadsError, match="is no tuple"):
        condition_from_dict({**Condition("mask").to_dict(), "rows": "last"})
    assert Mask([(0, 1)], rows="last").condition.rows == ("last",)


@pytest.mark.parametrize("head", [(0.5, 1), (True, 0), "11"])
def test_heads_that_are_none(head: Any) -> None:
    with pytest.raises(HarnessHeadsError, match="is no head"):
        Mask([head])


def test_what_would_be_answered_twice() -> None:
    case = build("llava")
    engine = engine_of(case)
    sets = [empty_set(MODEL, engine.geometry), heads_of(engine), heads_of(engine, (0, 1))]

    def ask(**changed: Any) -> Any:
        given = {"keys": ["e", "s", "t"], "conditions": [Condition("mask")], "options": ["A", "B"], **changed}
        return engine.answer(case.inputs, sets, image_sizes=case.sizes, **given)

    for match, changed in (
        ("key 's' is given twice", {"keys": ["e", "s", "s"]}),
        ("condition 'mask:image' is given twice", {"conditions": [Condition("mask"), Condition("mask")]}),
        ("option 'A' is given twice", {"options": ["A", "B", "A"]}),
    ):
        with pytest.raises(HarnessHeadsError, match=match):
            ask(**changed)
    assert set(ask().logprobs["mask:image"]) == {"e", "s", "t"}


def test_options_that_share_a_token() -> None:
    class Same(Words):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            return super().encode("A" if text.strip() == "a" else text)

    with pytest.raises(HarnessHeadsError, match="options 'A' and 'a' share the token 11"):
        option_tokens(family_of(build("llava").model), Same(), ["A", "B", "a"])


def test_a_mask_that_keeps_only_the_own_key_acts_where_rows_see_nothing_but_the_image() -> None:
    """Mass on the image is 1 before and after; what a row attends to is not the same."""
    case = build("llava", dtype=torch.float64)
    inputs = dict(case.inputs)
    first = int((inputs["input_ids"][0] == IMAGE).nonzero()[0])
    for name in ("input_ids", "attention_mask"):
        inputs[name] = inputs[name][:, first:]
    last = int((inputs["input_ids"][0] == IMAGE).nonzero()[-1])
    for name in ("input_ids", "attention_mask"):
        inputs[name] = inputs[name][:, : last + 1]  # the prompt is the image alone
    engine = engine_of(case)
    some = HeadSet("some", MODEL, engine.geometry, tuple(engine.geometry.all_heads())[:3])
    sets, condition = [empty_set(MODEL, engine.geometry), some], Condition("mask", keep_self=True)
    found = engine.answer(
        inputs, sets, keys=["e", "s"], conditions=[condition], options=["A"], image_sizes=case.sizes
    )  # fmt: skip
    assert found.dose[condition.name]["s"] == pytest.approx({"before": 1.0, "after": 1.0})
    by_set = found.logprobs[condition.name]
    assert abs(by_set["s"]["A"] - by_set["e"]["A"]) > 1e-3
    with torch.no_grad(), intervene(case.model, Mask(some, keep_self=True)):
        case.model(**inputs)


@pytest.mark.parametrize("beta", [2.0, "hard"])
def test_steering_acts_where_a_sliding_window_hides_its_target(beta: Any) -> None:
    """The rows see the other images alone: these are lowered, and no mass lies on the target before or after."""
    case = build("gemma3", images=3, dtype=torch.float64)
    engine = Engine(case.model, case.tokenizer)
    some = HeadSet("some", MODEL, engine.geometry, (Head(0, 0), Head(0, 1)))  # layer 0 slides over 12 keys
    box = {"box": Region(((0.0, 0.0, 16.0, 16.0),), image=0)}
    condition = Condition("steer", "box", ("question",), beta)
    found = engine.answer(
        case.inputs, [empty_set(MODEL, engine.geometry), some], keys=["e", "s"], conditions=[condition],
        options=["A"], regions=box, image_sizes=case.sizes,
    )  # fmt: skip
    assert found.dose[condition.name]["s"] == {"before": 0.0, "after": 0.0}
    by_set = found.logprobs[condition.name]
    assert abs(by_set["s"]["A"] - by_set["e"]["A"]) > 1e-4
    assert engine.proof is not None and engine.proof.reference_gap < 1e-9
    with torch.no_grad(), engine.generating(some, condition, regions=box, image_sizes=case.sizes):
        case.model(**case.inputs)


def test_moved_beside_its_keys() -> None:
    """Closed form: nothing on the keys, something between nothing and all on what is lowered."""
    case = build("llava")
    layout = engine_of(case).layout(case.inputs, case.sizes)
    box = {"box": Region(((0.0, 0.0, 8.0, 8.0),))}
    action = resolve(Condition("steer", "box", beta=1.0), layout, box)
    keys, others = torch.tensor([0.0, 0.0, 0.0, 0.4]), torch.tensor([0.0, 0.5, 1.0, 0.5])
    alone = torch.zeros(4, dtype=torch.bool)
    assert moved_beside(action, keys, others, alone).tolist() == [False, True, False, False]
    kept = resolve(Condition("mask", keep_self=True), layout, {})
    assert moved_beside(kept, keys, others, ~alone).tolist() == [False] * 4
    assert moved_beside(kept, keys, others, alone).tolist() == [False, False, False, True]
    plain = resolve(Condition("mask"), layout, {})
    assert not moved_beside(plain, keys, others, alone).any()


@pytest.mark.parametrize(
    ("match", "call"),
    [
        ("rows=None; write a row group", lambda m, i: Mask([(1, 0)], rows=None)),
        ("unknown row group 3", lambda m, i: Mask([(1, 0)], rows=[3])),
        ("keys=None is no word", lambda m, i: Mask([(1, 0)], keys=None)),
        ("is no word; write 'image'", lambda m, i: Steer([(1, 0)], Region(((0.0, 0.0, 8.0, 8.0),)))),
        (r"heads=5; write \(layer, head\) pairs", lambda m, i: Mask(5)),
        ("is no intervention; write Mask", lambda m, i: intervene(m, [(1, 0)]).__enter__()),
        ("NoneType is no transformers model", lambda m, i: intervene(None, Mask([(1, 0)])).__enter__()),
        ("write a mapping of names to Region", lambda m, i: intervene(m, Mask([(1, 0)]), regions=[3]).__enter__()),
        (r"region 'b' is \(0, 0, 8, 8\); write Region", lambda m, i: read(m, i, regions={"b": (0, 0, 8, 8)})),
        ("inputs hold no input_ids", lambda m, i: read(m, {})),
        ("rows is empty", lambda m, i: read(m, i, rows=())),
    ],
)  # fmt: skip
def test_wrong_types_in_library_use_are_named(match: str, call: Any) -> None:
    case = build("llava")
    with pytest.raises(HarnessHeadsError, match=match):
        call(case.model, case.inputs)


def test_numbers_of_numpy_and_single_rows_are_taken() -> None:
    case = build("llava")
    assert Steer([(1, 0)], "image", np.float32(2.0)).condition == Condition("steer", "image", beta=2.0)
    one = read(case.model, case.inputs, rows=3)
    assert torch.equal(one, read(case.model, case.inputs, rows=[3]))
