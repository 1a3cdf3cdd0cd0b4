"""Arrays in JSON: exact for every shape, small for 32-bit values, one line when damaged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.arrays import pack, unpack

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=(3, 4, 5)),
        np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
        np.zeros((0, 4)),
        np.zeros((2, 3, 0)),
        np.array(2.5),
        np.arange(-3, 4),
        RNG.normal(size=(5, 6)).T[::2],
    ],
)
def test_round_trip_is_exact(values: np.ndarray) -> None:
    back = unpack(json.loads(json.dumps(pack(values))))
    np.testing.assert_array_equal(back, values)
    assert back.shape == values.shape
    assert np.array_equal(np.signbit(back), np.signbit(values))


def test_32_bit_values_take_half_the_room() -> None:
    values = RNG.normal(size=(200, 50))
    whole = len(pack(values)["deflate_base64"])
    assert len(pack(values.astype(np.float32).astype(np.float64))["deflate_base64"]) < 0.65 * whole


@pytest.mark.parametrize("damage", [{"shape": [7]}, {"deflate_base64": "AAAA"}, {"dtype": "<q7"}])
def test_damage_is_one_line(damage: dict[str, object]) -> None:
    with pytest.raises(HarnessHeadsError, match="cannot be read back"):
        unpack({**pack(RNG.normal(size=(2, 3))), **damage})
