"""What a family is asked: for a box in its own words, for a point where the probe's region is a mask."""

from __future__ import annotations

import pytest

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.gemma import GEMMA3
from harness_heads.families.internvl import INTERNVL
from harness_heads.families.qwen import QWEN3_VL
from harness_heads.models.located import grounding_text
from harness_heads.probes import Probe
from harness_heads.regions import Region

REGION = Region(((0.0, 0.0, 9.0, 9.0),))


def probe(name: str) -> Probe:
    return Probe("locate", "t", "i", "locate", regions={name: REGION}, expression="the mug")


def test_a_mask_asks_for_a_point_where_the_family_documents_how() -> None:
    box, point = (grounding_text(QWEN3_VL, probe(name)) for name in ("gold", "mask"))
    assert box == "Locate the mug in this image and output the bbox coordinates in JSON format."
    assert point == "Locate the mug in this image and output the point coordinates in JSON format."


def test_other_families_are_asked_for_a_box_whose_centre_counts() -> None:
    asked = grounding_text(INTERNVL, probe("mask"))
    assert asked == grounding_text(INTERNVL, probe("gold")) and "bounding box" in asked


def test_families_without_a_documented_form_are_refused() -> None:
    with pytest.raises(HarnessHeadsError, match="no documented grounding prompt"):
        grounding_text(GEMMA3, probe("mask"))
