"""What discovery reads against the float64 oracle: every family, alone and in batches with padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracle import float64_throughout, run_oracle
from tiny_models import BUILDERS, build

from harness_heads.discovery.capture import Got, Want, capture
from harness_heads.discovery.prompts import Rendered, with_answers
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import FAMILIES, family_of
from harness_heads.layouts import PromptLayout
from harness_heads.regions import Region

RELATIVE = 1e-6


def longer(inputs: dict[str, Any], words: int) -> dict[str, Any]:
    """The prompt with more words in its question (before the three tokens of the tail)."""
    ids = inputs["input_ids"]
    out = dict(inputs)
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.shape == ids.shape:
            extra = torch.arange(60, 60 + words)[None] if key == "input_ids" else value[:, -4:-3].expand(1, words)
            out[key] = torch.cat([value[:, :-3], extra.to(value.dtype), value[:, -3:]], 1)
    return out


def batch_of(prompts: list[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """Prompts padded on the left to one batch, and the padding of each."""
    lengths = [p["input_ids"].shape[1] for p in prompts]
    pads = [max(lengths) - n for n in lengths]
    out: dict[str, Any] = {}
    for key, value in prompts[0].items():
        if not isinstance(value, torch.Tensor):
            out[key] = value
        elif value.shape == prompts[0]["input_ids"].shape:
            out[key] = torch.cat(
                [torch.cat([p[key].new_zeros(1, pad), p[key]], 1) for p, pad in zip(prompts, pads, strict=True)]
            )
        else:
            out[key] = torch.cat([p[key] for p in prompts])
    return out, pads


def want_of(layout: PromptLayout, size: tuple[int, int]) -> Want:
    rows = layout.rows("question", "last")
    half = layout.region_tokens(Region(((0.0, 0.0, size[0] / 2, float(size[1])),), len(layout.images) - 1))
    regions = {"target": half, "image": layout.image_positions, "sink": torch.zeros(1, dtype=torch.long)}
    return Want(rows, regions, {"some": torch.arange(2, len(rows))})


def check(got: Got, attention: dict[int, np.ndarray], row: int, want: Want, pad: int) -> None:
    for layer, seen in attention.items():
        dense = seen[row][:, want.rows.numpy() + pad]  # (H, R, K)
        heads = dense.shape[0]
        for name, keys in want.regions.items():
            expected = dense[:, :, keys.numpy() + pad].sum(-1)
            np.testing.assert_allclose(got.sums[name][layer, :heads].numpy(), expected, rtol=RELATIVE, atol=1e-15)
        assert (got.strongest[layer, :heads].numpy() + pad == dense.argmax(-1)).all()
        image = want.regions["image"].numpy()
        on_image = dense[:, :, image + pad]
        assert (got.strongest_image[layer, :heads].numpy() == image[on_image.argmax(-1)]).all()
        mean = on_image[:, want.groups["some"].numpy()].mean(1)
        np.testing.assert_allclose(got.maps["some"][layer, :heads].numpy(), mean, rtol=RELATIVE, atol=1e-15)
        assert got.sums["image"][layer, heads:].isnan().all()


def test_no_model_type_goes_without_the_oracle() -> None:
    held = {build(name).model.config.model_type for name in BUILDERS}
    assert held == {name for family in FAMILIES for name in family.model_types}


@pytest.mark.parametrize("family", BUILDERS)
def test_sums_strongest_keys_and_maps_equal_the_oracles(family: str) -> None:
    case = build(family, 1, seed=5, dtype=torch.float64)
    rules = family_of(case.model)
    prompts = [case.inputs, longer(case.inputs, 5)]
    layouts = [rules.layout(case.model.config, p, case.sizes, case.tokenizer) for p in prompts]
    wants = [want_of(layout, case.sizes[-1]) for layout in layouts]
    with float64_throughout():
        for prompt, want in zip(prompts, wants, strict=True):
            got = capture(case.model, rules, prompt, [want], [0])[0]
            check(got, run_oracle(case.model, prompt, [None]).attention, 0, want, 0)
        inputs, pads = batch_of(prompts)
        assert pads == [5, 0]
        both = capture(case.model, rules, inputs, wants, pads)
        attention = run_oracle(case.model, inputs, [None, None]).attention
        for row in range(2):
            check(both[row], attention, row, wants[row], pads[row])


def test_reading_leaves_the_models_output_as_it_is() -> None:
    case = build("qwen3_vl", seed=1)
    rules = family_of(case.model)
    with torch.no_grad():
        before = case.model(**case.inputs, use_cache=False, logits_to_keep=1).logits
    seen: list[torch.Tensor] = []
    hook = case.model.lm_head.register_forward_hook(lambda _m, _a, out: seen.append(out))
    layout = rules.layout(case.model.config, case.inputs, case.sizes, case.tokenizer)
    capture(case.model, rules, case.inputs, [want_of(layout, case.sizes[0])], [0])
    hook.remove()
    assert torch.equal(seen[0], before)


def test_hybrid_layers_without_softmax_heads_hold_no_value() -> None:
    case = build("qwen3_5", seed=2)
    rules = family_of(case.model)
    layout = rules.layout(case.model.config, case.inputs, case.sizes, case.tokenizer)
    got = capture(case.model, rules, case.inputs, [want_of(layout, case.sizes[0])], [0])[0]
    empty = [layer for layer, count in enumerate(rules.geometry(case.model).heads) if not count]
    assert empty
    for layer in range(got.sums["image"].shape[0]):
        assert bool(got.sums["image"][layer].isnan().all()) == (layer in empty)


@pytest.mark.parametrize(
    ("rows", "image", "words"),
    [([], [4, 5], "no row to read"), ([9], [], "no image token")],
)
def test_nothing_to_read_is_an_error(rows: list[int], image: list[int], words: str) -> None:
    case = build("qwen3_vl")
    want = Want(torch.tensor(rows, dtype=torch.long), {"image": torch.tensor(image, dtype=torch.long)})
    with pytest.raises(HarnessHeadsError, match=words):
        capture(case.model, family_of(case.model), case.inputs, [want], [0])


def test_as_many_wants_as_prompts() -> None:
    case = build("qwen3_vl")
    rules = family_of(case.model)
    layout = rules.layout(case.model.config, case.inputs, case.sizes, case.tokenizer)
    want = want_of(layout, case.sizes[0])
    with pytest.raises(HarnessHeadsError, match="1 prompts in the batch, 2 wanted"):
        capture(case.model, rules, case.inputs, [want, want], [0, 0])


@pytest.mark.parametrize("family", BUILDERS)
def test_answer_tokens_behind_the_prompt_change_nothing_of_its_rows(family: str) -> None:
    """All sources are read in one pass: prompt rows must not see the answer, prefix attention included."""
    case = build(family, 1, seed=6, dtype=torch.float64)
    rules = family_of(case.model)
    layout = rules.layout(case.model.config, case.inputs, case.sizes, case.tokenizer)
    want = want_of(layout, case.sizes[-1])
    rendered = Rendered(case.inputs, (layout,), (0,), ("",))
    alone = capture(case.model, rules, case.inputs, [want], [0])[0]
    answered = with_answers(rendered, [torch.tensor([70, 71, 72])], 0, case.model.config)
    behind = capture(case.model, rules, answered, [want], [0])[0]
    # rotary angles are float32 in transformers, and on some processors their last digit depends on the prompt's length
    for name in want.regions:
        torch.testing.assert_close(behind.sums[name], alone.sums[name], rtol=0, atol=2e-5, equal_nan=True)
    rows = torch.arange(layout.length, layout.length + 3)
    later = capture(case.model, rules, answered, [Want(rows, want.regions)], [0])[0]
    # layers with a sliding window may no longer reach the image from there
    reached = later.sums["image"].nan_to_num(0.0)
    assert bool((reached >= 0).all()) and float(reached.amax()) > 0
