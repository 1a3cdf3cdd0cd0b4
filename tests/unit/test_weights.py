"""Digests of weights: equal for equal weights, different where a few heads were edited."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from harness_heads.weights import SAMPLE, spread_digest, weights_digest


class Layer(nn.Module):
    """Projections of 8 heads of 16 on a width of 128: far more values than are looked at."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.q_proj = nn.Parameter(torch.randn(128, width, generator=draw))
        self.o_proj = nn.Parameter(torch.randn(width, 128, generator=draw))
        self.scale = nn.Parameter(torch.tensor(2.0))


@pytest.mark.parametrize("width", [128, 96, 224, 1])
@pytest.mark.parametrize("head", range(8))
@pytest.mark.parametrize("name", ["q_proj", "o_proj"])
def test_an_edit_of_one_head_shows(name: str, head: int, width: int) -> None:
    before, after = Layer(width), Layer(width)
    assert spread_digest(before) == spread_digest(after) and weights_digest(before) == weights_digest(after)
    rows = slice(16 * head, 16 * head + 16)
    with torch.no_grad():
        if name == "q_proj":
            after.q_proj[rows] = 0
        else:
            after.o_proj[:, rows] = 0
    assert spread_digest(before) != spread_digest(after)


def test_other_names_and_shapes_are_other_weights() -> None:
    digests = {spread_digest(m) for m in (Layer(), Layer(64), nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))}
    assert len(digests) == 4 and all(len(d) == 12 for d in digests)


def test_every_column_has_its_turn() -> None:
    """A step that divides a row's length would look at the same columns for ever."""
    wide: Any = nn.Linear(SAMPLE, 64, bias=False)
    column = torch.zeros(64, SAMPLE)
    column[:, 1::2] = 1
    wide.weight.data = column
    other: Any = nn.Linear(SAMPLE, 64, bias=False)
    other.weight.data = torch.zeros(64, SAMPLE)
    assert spread_digest(wide) != spread_digest(other)


def test_weights_that_are_elsewhere_are_named() -> None:
    with torch.device("meta"):
        assert len(weights_digest(nn.Linear(4, 4))) == 12
