"""Rank p of sets that mean nothing is uniform: the small version of ``reports/tiny-digits/rank_uniformity.py``."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness_heads import tiny
from harness_heads.models.wrapped import wrapped_class
from harness_heads.protocol.statistics import rank_p

FOLDER = Path(__file__).parents[2] / "reports" / "tiny-digits"
SETS, CONTROLS, ITEMS = 120, 4, 3


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("rank_uniformity", FOLDER / "rank_uniformity.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def scores(script: ModuleType) -> np.ndarray:
    """NCS (sets, 1 + controls) of random sets and their own controls."""
    wrapped: Any = wrapped_class("masked", "qwen3_vl")(pretrained=tiny.NAME, controls=0, condition_batch=64)
    families = script.draw(wrapped.engine.geometry, wrapped.reference, 8, SETS, CONTROLS, 5)
    prompts = script.prepare(wrapped, ITEMS)
    everything = [heads for family in families for heads in family]
    values: np.ndarray = script.necessity(wrapped.engine, prompts, everything).reshape(SETS, -1)
    return values


def ranks(scores: np.ndarray) -> np.ndarray:
    """Rank of each first column among its row, 1 for the largest."""
    return np.rint([rank_p(row[0], row[1:]) * (CONTROLS + 1) for row in scores]).astype(int)


def test_rank_p_of_random_sets_is_uniform(script: ModuleType, scores: np.ndarray) -> None:
    assert np.unique(scores.round(12)).size > SETS  # the sets do something: ties would hide everything
    result = script.uniformity(ranks(scores), CONTROLS + 1, 20_000, np.random.default_rng(0))
    assert result["degrees_of_freedom"] == CONTROLS
    assert result["exact_p"] > 0.001


def test_controls_that_are_no_peers_are_found(script: ModuleType, scores: np.ndarray) -> None:
    """The same sets against the smaller of every two controls: ranks crowd at the top, and the test sees it."""
    weaker = np.concatenate([scores[:, :1], np.minimum(scores[:, 1:], np.roll(scores[:, 1:], 1, axis=0))], axis=1)
    result = script.uniformity(ranks(weaker), CONTROLS + 1, 20_000, np.random.default_rng(0))
    assert result["exact_p"] < 0.001


def test_the_committed_result_is_what_its_own_ranks_give(script: ModuleType) -> None:
    result = json.loads((FOLDER / "rank_uniformity.json").read_text(encoding="utf-8"))
    p = np.array(result["rank_p"])
    cells = len(result["counts"])
    assert (len(p), cells) == (400, 21)
    again = np.rint(p * cells).astype(int)
    assert np.bincount(again - 1, minlength=cells).tolist() == result["counts"]
    expected = len(p) / cells
    assert result["chi_square"] == pytest.approx(sum((c - expected) ** 2 / expected for c in result["counts"]))
    assert result["share_at_or_below_.05"] == pytest.approx((p <= 0.05).mean())
