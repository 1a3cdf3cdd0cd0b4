"""Arrays inside JSON: exact and compact, so that evidence survives the round trip bit by bit."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness_heads.errors import HarnessHeadsError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def pack(values: NDArray[Any]) -> dict[str, Any]:
    """Little-endian values, bytes of equal significance together, deflated, in base64, with shape and type.

    Log-probabilities come from 32-bit arithmetic: their low bytes are zeros, which deflate to nothing once they lie
    together.
    """
    kind = "<i8" if values.dtype.kind in "iu" else "<f8"
    raw = np.ascontiguousarray(values, dtype=kind).view(np.uint8).reshape(-1, 8).T.tobytes()
    text = base64.b64encode(zlib.compress(raw, 9)).decode("ascii")
    return {"dtype": kind, "shape": list(values.shape), "deflate_base64": text}


def unpack(value: Mapping[str, Any]) -> NDArray[Any]:
    """Read what :func:`pack` wrote."""
    try:
        raw = zlib.decompress(base64.b64decode(value["deflate_base64"]))
        rows = np.frombuffer(raw, np.uint8).reshape(8, -1).T
        out: NDArray[Any] = np.ascontiguousarray(rows).view(value["dtype"]).reshape(value["shape"])
        return out
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise HarnessHeadsError(f"evidence: an array cannot be read back ({error}); write the report again") from error
