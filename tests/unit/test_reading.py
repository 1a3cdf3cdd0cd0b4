"""Library use: reading against the oracle's attention, intervening without a harness."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import float64_throughout, run_oracle
from tiny_models import BUILDERS, build

import harness_heads
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head
from harness_heads.regions import Region


@pytest.mark.parametrize("name", BUILDERS)
def test_read_equals_the_oracle(name: str) -> None:
    case = build(name, dtype=torch.float64)
    width, height = case.sizes[0]
    region = {"left": Region(((0.0, 0.0, width / 2, float(height)),))}
    with float64_throughout():
        attention = run_oracle(case.model, case.inputs, [None]).attention
        sums = harness_heads.read(
            case.model, case.inputs, rows=("question", "last"), regions=region, image_sizes=case.sizes,
            processor=case.tokenizer,
        )  # fmt: skip
    ids = case.inputs["input_ids"][0]
    image = (ids == 100).nonzero()[:, 0].numpy()
    length = len(ids)
    after = int(image[-1]) + 1
    rows = [*range(after, length - (1 if name == "paligemma" else 3)), length - 1]
    for layer, weights in attention.items():
        if name.startswith("qwen3_5") and layer in (0, 2):
            continue
        expected = weights[0][:, rows][:, :, image].sum(-1).mean(1)
        np.testing.assert_allclose(sums[layer, :, 0].numpy(), expected, atol=1e-6)
    assert bool((sums[..., 1] <= sums[..., 0] + 1e-6).all()) and float(sums[..., 1].max()) > 0
    if name.startswith("qwen3_5"):
        assert float(sums[0].abs().max()) == 0.0


def test_read_by_row_numbers_and_without_rows() -> None:
    case = build("llava")
    last = case.inputs["input_ids"].shape[1] - 1
    by_name = harness_heads.read(case.model, case.inputs, processor=case.tokenizer)
    by_number = harness_heads.read(case.model, case.inputs, rows=[last], processor=case.tokenizer)
    assert torch.equal(by_name, by_number)
    text = build("paligemma")
    with pytest.raises(HarnessHeadsError, match="read: no row prefix"):
        harness_heads.read(text.model, text.inputs, rows=("prefix",))


def test_intervene_without_a_harness() -> None:
    case = build("qwen3_vl")
    region = {"box": Region(((0.0, 0.0, 8.0, 8.0),))}
    with torch.no_grad():
        clean = case.model(**case.inputs).logits[0, -1]
        found = {}
        for name, what in {
            "mask": harness_heads.Mask([(1, 0), (2, 3)]),
            "region": harness_heads.Mask([(1, 0), (2, 3)], keys="box"),
            "question": harness_heads.Mask([(1, 0), (2, 3)], rows=("question",)),
            "steer": harness_heads.Steer([(1, 0), (2, 3)], keys="box", beta=2.0),
            "ablate": harness_heads.Ablate([(1, 0), (2, 3)]),
        }.items():
            with harness_heads.intervene(
                case.model, what, processor=case.tokenizer, regions=region, image_sizes=case.sizes
            ):
                found[name] = case.model(**case.inputs).logits[0, -1]
        again = case.model(**case.inputs).logits[0, -1]
    assert torch.equal(again, clean)
    values = [*found.values(), clean]
    for i, a in enumerate(values):
        for b in values[i + 1 :]:
            assert float((a - b).abs().max()) > 1e-4


def test_intervene_names_heads_that_are_not_there() -> None:
    case = build("qwen3_5")
    for pair, message in (((0, 0), "no softmax attention heads"), ((9, 0), "layer 9 is out of range")):
        with (
            pytest.raises(HarnessHeadsError, match=message),
            harness_heads.intervene(case.model, harness_heads.Mask([pair])),
        ):
            pass
    assert harness_heads.Mask([(1, 2)]).heads == (Head(1, 2),)


def test_unknown_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Masc'"):
        harness_heads.Masc  # noqa: B018
