"""``harness-heads doctor --model``: by class or by weights, and how where neither can be told."""

from __future__ import annotations

import pytest

from harness_heads.cli.doctor import named
from harness_heads.errors import HarnessHeadsError


@pytest.mark.parametrize(
    ("model", "args", "expected"),
    [
        ("tiny-digits", "", ("masked_qwen3vl", "pretrained=tiny-digits,controls=0")),
        ("OpenGVLab/InternVL3_5-8B-HF", "controls=2", ("masked_internvl_hf", None)),
        ("steered_qwen3vl", "pretrained=tiny-digits", ("steered_qwen3vl", "pretrained=tiny-digits,controls=0")),
        ("steered_qwen3vl", "controls=2", ("steered_qwen3vl", "controls=2")),
    ],
)
def test_a_class_or_the_weights_themselves(model: str, args: str, expected: tuple[str, str | None]) -> None:
    found = named(model, args)
    assert found[0] == expected[0]
    assert found[1] == (expected[1] or f"pretrained={model},{args}")


@pytest.mark.parametrize(
    ("model", "args", "says"),
    [
        ("tiny-digit", "", "did you mean 'tiny-digits'.*--model masked_qwen3vl --model_args pretrained=tiny-digit"),
        ("some/model", "", "name its host: --model masked_qwen3vl --model_args pretrained=some/model"),
        ("tiny-digits", "controls", "'controls' has no value"),
        ("tiny-digits", "pretrained=other", "pretrained is given twice"),
    ],
)
def test_what_cannot_be_told_says_how(model: str, args: str, says: str) -> None:
    with pytest.raises(HarnessHeadsError, match=says):
        named(model, args)
