"""The lean forward pass equals transformers' own, sharing and cutting included."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl import modeling_qwen3_vl

from harness_heads.tiny import augment, data, wording
from harness_heads.tiny.architecture import HEADS, KV_HEADS, LAYERS, build_model, mimetic_groups
from harness_heads.tiny.batches import framed, to_float
from harness_heads.tiny.encode import PREFIX, TAIL, Encoder
from harness_heads.tiny.items import Part, Question
from harness_heads.tiny.lean import LATE_LAYERS, Block, Group, Lean
from harness_heads.tiny.measure import cut_of, last_rows
from harness_heads.tiny.ops import head_norm, rotate
from harness_heads.tiny.processor import build_processor

PROCESSOR = build_processor()
ENCODER = Encoder(PROCESSOR.tokenizer)
QUESTION = wording.mcq(wording.SINGLE, ("one", "two", "three", "four"))


@pytest.fixture(scope="module")
def model() -> Qwen3VLForConditionalGeneration:
    """Random weights, large enough that heads differ and logits are not flat."""
    model = build_model(PROCESSOR.tokenizer, seed=5, mimetic_per_layer=2).eval()
    model.set_attn_implementation("eager")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(0.05 * torch.randn(parameter.shape, generator=draw))
    return model


def scene(kind: str) -> tuple[Any, augment.Cells]:
    """One picture as PIL and as patches."""
    rng = np.random.default_rng(1)
    images, _ = data.digits("train")
    cells = [data.render_cell(images[i], rng) for i in range(6)]
    patches = augment.cell_patches(np.stack([np.asarray(cell.convert("L")) for cell in cells]))
    if kind == "single":
        return cells[0], augment.single_patches(patches[:1])
    if kind == "strip":
        return data.strip(cells), augment.strip_patches(patches[None])
    bank = augment.build_bank("train", 1, augment=True, rng=rng)
    return data.mark(data.grid(cells[:4]), 2), augment.grid_patches(framed(patches[None, :4].copy(), [2], bank))


def inputs_of(picture: Any, question: str) -> Any:
    text = PREFIX + "<|image_pad|><|vision_end|>" + question + TAIL
    return PROCESSOR(text=[text], images=[picture], return_tensors="pt")


@pytest.mark.parametrize("kind", ["single", "grid", "strip"])
def test_patches_equal_the_processors(kind: str) -> None:
    picture, patches = scene(kind)
    pixels = inputs_of(picture, QUESTION).pixel_values.view(-1, 6, 256)
    assert (pixels - to_float(patches)[0][:, None]).abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["single", "grid", "strip"])
def test_logits_equal_transformers(model: Qwen3VLForConditionalGeneration, kind: str) -> None:
    picture, patches = scene(kind)
    ids = torch.tensor([ENCODER.prompt(QUESTION)])
    lean = Lean(model, ENCODER.prefix, ENCODER.vision_end)
    with torch.no_grad():
        wanted = model(**inputs_of(picture, QUESTION)).logits[0, -ids.shape[1] :]
        found = lean.logits(lean.run([Group(kind, to_float(patches), (Block(ids, 1),))]).hidden[0][0])
    assert wanted.std() > 0.3
    assert (wanted - found).abs().max() < 5e-4


def test_shared_pictures_and_mixed_groups_change_nothing(model: Qwen3VLForConditionalGeneration) -> None:
    lean = Lean(model, ENCODER.prefix, ENCODER.vision_end)
    texts = [wording.ordinal(panel) for panel in range(4)]
    ids = torch.tensor([ENCODER.prompt(text) for text in texts])
    strip = to_float(scene("strip")[1])
    other = Group("grid", to_float(scene("grid")[1]), (Block(torch.tensor([ENCODER.prompt(QUESTION)]), 1),))
    with torch.no_grad():
        shared = lean.run([other, Group("strip", strip, (Block(ids, 4, last_rows(ids)),))]).hidden[1][0]
        for text, found in zip(texts, shared, strict=True):
            alone = Block(torch.tensor([ENCODER.prompt(text)]), 1)
            wanted = lean.run([Group("strip", strip, (alone,))]).hidden[0][0][-1]
            assert (wanted - found).abs().max() < 5e-4


@pytest.fixture
def reference_cut(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Makes transformers' eager attention hide image keys from given heads: {"heads": ..., "image": slice}."""
    plan: dict[str, Any] = {"heads": [], "image": slice(0, 0)}
    stock = modeling_qwen3_vl.eager_attention_forward

    def cutting(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **named: Any) -> Any:
        if isinstance(module, modeling_qwen3_vl.Qwen3VLTextAttention):
            attention_mask = attention_mask.expand(-1, HEADS, -1, -1).clone()
            for layer, head in plan["heads"]:
                if layer == module.layer_idx:
                    attention_mask[:, head, :, plan["image"]] = float("-inf")
            if plan.get("late") and module.layer_idx < LATE_LAYERS:
                attention_mask[:, :, plan["late"], plan["image"].start : plan["late"].start] = float("-inf")
        return stock(module, query, key, value, attention_mask, **named)

    monkeypatch.setattr(modeling_qwen3_vl, "eager_attention_forward", cutting)
    yield plan


@pytest.mark.parametrize("heads", [[(0, 3)], [(1, 0), (1, 1), (4, 15)], [(2, head) for head in range(HEADS)]])
def test_cut_equals_a_mask_in_transformers(
    model: Qwen3VLForConditionalGeneration, reference_cut: dict[str, Any], heads: list[tuple[int, int]]
) -> None:
    picture, patches = scene("grid")
    ids = torch.tensor([ENCODER.prompt(QUESTION)])
    start = len(ENCODER.prefix)
    lean = Lean(model, ENCODER.prefix, ENCODER.vision_end)
    with torch.no_grad():
        clean = model(**inputs_of(picture, QUESTION)).logits[0, -1]
        reference_cut.update(heads=heads, image=slice(start, start + 16))
        wanted = model(**inputs_of(picture, QUESTION)).logits[0, -1]
        group = Group("grid", to_float(patches), (Block(ids, 1, last_rows(ids)),), cut_of(heads))
        found = lean.logits(lean.run([group]).hidden[0][0])[0]
    assert (wanted - clean).abs().max() > 1e-3
    assert (wanted - found).abs().max() < 5e-4


def test_late_rows_equal_a_mask_in_transformers(
    model: Qwen3VLForConditionalGeneration, reference_cut: dict[str, Any]
) -> None:
    picture, patches = scene("strip")
    ids, targets = ENCODER.block([Question("any", QUESTION, (Part("A"),))])
    ids, tail = ids[:, :-1], targets.tail[:, :-1]
    start, end = len(ENCODER.prefix), len(ENCODER.prefix) + 24 + 1 + ids.shape[1]
    assert tail[0].nonzero()[:, 0].tolist() == list(range(ids.shape[1] - 5, ids.shape[1]))
    lean = Lean(model, ENCODER.prefix, ENCODER.vision_end)
    with torch.no_grad():
        clean = model(**inputs_of(picture, QUESTION)).logits[0, -1]
        reference_cut.update(image=slice(start, start + 24), late=slice(end - 5, end))
        wanted = model(**inputs_of(picture, QUESTION)).logits[0, -1]
        group = Group("strip", to_float(patches), (Block(ids, 1, last_rows(ids), tail),))
        found = lean.logits(lean.run([group]).hidden[0][0])[0]
    assert (wanted - clean).abs().max() > 1e-3
    assert (wanted - found).abs().max() < 5e-4


def test_all_heads_cut_makes_question_rows_blind(model: Qwen3VLForConditionalGeneration) -> None:
    lean = Lean(model, ENCODER.prefix, ENCODER.vision_end)
    ids = torch.tensor([ENCODER.prompt(QUESTION)] * 2)
    rng = np.random.default_rng(2)
    cells = augment.noise_cells(2, rng)
    every = cut_of([(layer, head) for layer in range(LAYERS) for head in range(HEADS)])
    with torch.no_grad():
        block = (Block(ids, 1, last_rows(ids)),)
        pictures = to_float(augment.single_patches(cells))
        seeing = lean.run([Group("single", pictures, block)]).hidden[0][0]
        blind = lean.run([Group("single", pictures, block, every)]).hidden[0][0]
    assert (seeing[0] - seeing[1]).abs().max() > 1e-3
    assert (blind[0] - blind[1]).abs().max() < 1e-6


def test_gradients_of_the_two_operations() -> None:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(3, 4, 16, generator=draw, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(3, 1, 8, generator=draw, dtype=torch.float64).repeat(1, 1, 2)
    assert torch.autograd.gradcheck(lambda t: head_norm(t, 1e-6), (x,))
    assert torch.autograd.gradcheck(lambda t: rotate(t, angle.cos(), angle.sin()), (x,))
    stock = torch.nn.functional.rms_norm(x, (16,), eps=1e-6)
    assert (head_norm(x, 1e-6) - stock).abs().max() < 1e-12


def test_mimetic_heads_are_drawn_by_seed_and_match_their_queries() -> None:
    groups = mimetic_groups(5, 2)
    assert [len(row) for row in groups] == [2] * LAYERS and groups != mimetic_groups(6, 2)
    fresh = build_model(PROCESSOR.tokenizer, seed=5, mimetic_per_layer=2)
    for layer, chosen in zip(fresh.model.language_model.layers, groups, strict=True):
        query = layer.self_attn.q_proj.weight.view(KV_HEADS, 2, 16, -1)[:, 0].flatten(1)
        key = layer.self_attn.k_proj.weight.view(KV_HEADS, 16, -1).flatten(1)
        likeness = torch.nn.functional.cosine_similarity(query, key)
        assert (likeness > 0.7).nonzero()[:, 0].tolist() == chosen
