"""Quantised models: weights in 4 bits are exact against the dense reference, 8 bits with activations are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, BitsAndBytesConfig

from harness_heads import head_sets, tiny
from harness_heads.attention import quantisation
from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import empty_set

FOUR_BITS = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
CONDITIONS = (Condition("mask"), Condition("mask", rows=("last",)), Condition("steer", "image", beta=2.0))


def load(config: Any) -> Any:
    return AutoModelForImageTextToText.from_pretrained(
        str(tiny.WEIGHTS), quantization_config=config, device_map="cpu", dtype=torch.float32
    ).eval()


def prompt(processor: Any) -> tuple[Any, list[tuple[int, int]]]:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    content = [{"type": "image", "image": image}, {"type": "text", "text": "Which digit is shown?"}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
    )  # fmt: skip
    return inputs, [image.size]


def test_four_bits_are_proved_and_named() -> None:
    model, processor = load(FOUR_BITS), AutoProcessor.from_pretrained(str(tiny.WEIGHTS))
    assert type(model.get_decoder().layers[0].self_attn.q_proj).__module__.startswith("bitsandbytes")
    assert quantisation(model) == "bitsandbytes 4-bit nf4"
    inputs, sizes = prompt(processor)
    found = head_sets.resolve("tiny-digits/dg-ref-qsp")
    answers = {}
    for mode in ("batch", "auto"):
        engine = Engine(model, processor, mode=mode)  # type: ignore[arg-type]
        answers[mode] = engine.answer(
            inputs, [empty_set(found.model, found.geometry), found], keys=["empty", "found"],
            conditions=[*CONDITIONS, Condition("ablate", "")], options=["A", "B", "C", "D"], image_sizes=sizes,
        )  # fmt: skip
        assert engine.proof is not None
        assert engine.proof.reference_gap < 1e-4 < 0.05 < engine.proof.effect
    for condition, sets in answers["auto"].logprobs.items():
        for key, values in sets.items():
            assert values == pytest.approx(answers["batch"].logprobs[condition][key], abs=1e-4)
            assert all(math.isfinite(value) for value in values.values())


def test_generation_in_four_bits() -> None:
    model, processor = load(FOUR_BITS), AutoProcessor.from_pretrained(str(tiny.WEIGHTS))
    inputs, _ = prompt(processor)
    found = head_sets.resolve("tiny-digits/dg-ref-qsp")
    engine = Engine(model, processor, verify=False)
    clean = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    with engine.generating(empty_set(found.model, found.geometry), Condition("mask")):
        assert torch.equal(model.generate(**inputs, max_new_tokens=3, do_sample=False), clean)
    with torch.no_grad():
        before = model(**inputs).logits
        with engine.generating(found, Condition("mask")):
            under = model(**inputs).logits
    assert float((before - under).abs().max()) > 0.01


def test_eight_bits_are_refused() -> None:
    model, processor = load(BitsAndBytesConfig(load_in_8bit=True)), AutoProcessor.from_pretrained(str(tiny.WEIGHTS))
    assert quantisation(model) == "bitsandbytes 8-bit, activations too"
    with pytest.raises(HarnessHeadsError, match=r"quantised to 8 bits.*load it in 4 bits"):
        Engine(model, processor)


def test_other_methods_are_named() -> None:
    class Other(torch.nn.Module):
        config = type("Config", (), {"quantization_config": {"quant_method": "gptq", "bits": 4}})

    assert quantisation(Other()) == "gptq 4-bit"
    assert quantisation(torch.nn.Linear(2, 2)) == ""
