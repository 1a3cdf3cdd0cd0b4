"""The embedded model's shipped sets were found on the weights that ship beside them, and only on the discover split."""

from __future__ import annotations

import pytest

from harness_heads.controls import facts_of
from harness_heads.discovery.loading import load
from harness_heads.head_sets import check_model, fitting, resolve
from harness_heads.heads import HeadSet
from harness_heads.weights import weights_digest

NAMES = ("tiny-digits/dg-ref-qsp", "tiny-digits/dg-ord-last")


@pytest.mark.parametrize("name", NAMES)
def test_shipped_sets_belong_to_the_shipped_weights(name: str) -> None:
    loaded = load("tiny-digits", device="cpu")
    head_set = check_model(resolve(name), loaded.reference, loaded.geometry)
    found_on = head_set.provenance["read"]["weights"]
    assert found_on == weights_digest(loaded.model), "run reports/tiny-digits/discovery_stability.py --ship again"
    assert head_set.name in fitting("tiny-digits", loaded.geometry)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_sets_say_how_they_were_found(name: str) -> None:
    head_set: HeadSet = resolve(name)
    note = head_set.provenance
    assert note["corpus"]["split"] == "discover"
    assert note["setting"] == name.rsplit("/", 1)[1]
    assert len(head_set) == note["k"] == 8 <= 0.09 * head_set.geometry.total
    assert note["samples"] == 400
    facts = facts_of(head_set)
    assert facts is not None
    ranked = sorted(head_set.geometry.all_heads(), key=lambda h: -facts.scores[h])
    assert set(ranked[:8]) == set(head_set)
