"""Schedules that keep every short prefix of a task balanced.

A run with ``--limit`` sees a prefix; if the right answers of that prefix were mostly A, a model that likes A would look
good. So letters and cells are dealt in blocks: every block of k holds each of k values once.
"""

from __future__ import annotations

import numpy as np


def dealt(n: int, k: int, rng: np.random.Generator) -> list[int]:
    """``n`` values in 0..k-1; every aligned block of ``k`` is a permutation of them."""
    blocks = [rng.permutation(k) for _ in range(-(-n // k))]
    return [int(v) for block in blocks for v in block][:n]


def crossed(first: list[int], k: int, rng: np.random.Generator) -> list[int]:
    """A second schedule that is balanced by itself and against ``first``.

    Within a block it is ``first`` shifted by one number, hence a permutation; the ``k`` shifts are dealt over the
    blocks, so that after every k blocks each pair of values has occurred equally often.
    """
    shifts = dealt(-(-len(first) // k), k, rng)
    return [(value + shifts[i // k]) % k for i, value in enumerate(first)]


def others(first: list[int], k: int) -> list[int]:
    """For every value another one of 0..k-1: balanced within blocks of ``k``, its distance cycling over the blocks."""
    return [(value + 1 + (i // k) % (k - 1)) % k for i, value in enumerate(first)]
