"""Boxes under an intervention: all head sets of a run at once, each with its dose, whatever the batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness_heads import tiny
from harness_heads.conditions import Condition
from harness_heads.models.located import answer_locate, grounding_text
from harness_heads.models.wrapped import wrapped_class
from harness_heads.probes import Probe, ProbeResult

CONDITIONS = (Condition("mask"), Condition("mask", rows=("last",)))
PROBE = Probe("locate", "boxes", "item", "matched", conditions=CONDITIONS, expression="seven")


@pytest.fixture(scope="module")
def wrapped() -> Any:
    """The masked host on the embedded model, with three controls."""
    return wrapped_class("masked", "qwen3_vl")(pretrained=tiny.NAME, controls=3, verify=False)


def answer(wrapped: Any, sets_at_once: int) -> ProbeResult:
    """What the probe answers when so many sets share a batch."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    content = [{"type": "image", "image": image}, {"type": "text", "text": grounding_text(wrapped.family, PROBE)}]
    inputs = wrapped.processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
    ).to(wrapped.device)  # fmt: skip
    wrapped.engine.chunk = sets_at_once
    return answer_locate(
        wrapped.engine, wrapped.family, PROBE, CONDITIONS, list(wrapped.sets), inputs, [image.size], ("sha",)
    )


def test_every_set_has_its_text_box_and_dose_in_any_batch(wrapped: Any) -> None:
    everything = {entry.key for entry in wrapped.sets}
    acting = everything - {wrapped.sets.baseline.key}
    assert len(acting) == 4
    whole, pairs, single = (answer(wrapped, n) for n in (8, 2, 1))
    for condition in CONDITIONS:
        assert set(whole.text[condition.name]) == set(whole.boxes[condition.name]) == everything
        assert whole.text[condition.name] == pairs.text[condition.name] == single.text[condition.name]
        for result in (whole, pairs):
            dose = result.dose[condition.name]
            assert set(dose) == acting
            assert all(shift["after"] == 0 < shift["before"] < 1 for shift in dose.values())
        for key, shift in whole.dose[condition.name].items():
            assert pairs.dose[condition.name][key]["before"] == pytest.approx(shift["before"], rel=1e-4)
    assert single.dose == {}  # one set a batch has no clean pass beside it: no dose rather than a guess
