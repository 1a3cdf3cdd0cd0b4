"""Attention of replayed rows: every way to compute it gives what the scores written out give."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness_heads.engine_prefix import Prefixed, _few_rows, in_blocks, padded_causal

HEADS, KV, DIM = 4, 2, 8


def call_of(batch: int, prefix: int, rows: int, seed: int) -> Prefixed:
    draw = torch.Generator().manual_seed(seed)

    def made(heads: int, count: int, first: int = batch) -> torch.Tensor:
        return torch.randn(first, heads, count, DIM, generator=draw, dtype=torch.float64)

    own = made(KV, rows), made(KV, rows)
    shared = made(KV, prefix, 1), made(KV, prefix, 1)
    return Prefixed(made(HEADS, rows), *own, None, DIM**-0.5, None, lambda: torch.empty(0), *shared)


def written_out(call: Prefixed, visible: torch.Tensor) -> torch.Tensor:
    """(B, R, H, D), one head and row at a time; rows that see nothing give zero."""
    key, value = call.whole()
    b, h, r, d = call.query.shape
    out = torch.zeros(b, r, h, d, dtype=torch.float64)
    for i in range(b):
        for head in range(h):
            for row in range(r):
                seen = visible[row].nonzero()[:, 0]
                if len(seen):
                    scores = key[i, head // call.groups, seen] @ call.query[i, head, row] * call.scaling
                    out[i, row, head] = scores.softmax(0) @ value[i, head // call.groups, seen]
    return out


@given(
    batch=st.integers(1, 3),
    prefix=st.integers(0, 5),
    rows=st.integers(1, 9),
    size=st.integers(1, 10),
    seed=st.integers(0, 99),
    causal=st.booleans(),
)
def test_all_ways_agree(batch: int, prefix: int, rows: int, size: int, seed: int, causal: bool) -> None:
    call = call_of(batch, prefix, rows, seed)
    keys = prefix + rows
    visible = torch.arange(keys)[None, :] <= prefix + torch.arange(rows)[:, None]
    if not causal:  # any mask, rows without a key and keys that no row sees among them
        visible = torch.rand(rows, keys, generator=torch.Generator().manual_seed(seed)) < 0.4
    expected = written_out(call, visible)
    whole = call.whole()
    torch.testing.assert_close(in_blocks(call, *whole, visible, size), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(_few_rows(call, visible), expected, atol=1e-12, rtol=0)
    if causal:
        torch.testing.assert_close(padded_causal(call, *whole), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("size", [1, 3])
def test_rows_that_see_nothing_give_zero(size: int) -> None:
    call = call_of(2, 1, 3, 0)
    visible = torch.zeros(3, 4, dtype=torch.bool)
    assert in_blocks(call, *call.whole(), visible, size).abs().max() == 0
