"""Pooling over the tasks of a group, beside their own rows: for ``aggregate_metric_list`` in a group's YAML."""

from __future__ import annotations

import math
from collections.abc import Sequence


def stratified_mean(values: Sequence[object], sizes: Sequence[int], weight_by_size: bool = True) -> float | str:
    """Mean over items, stratified by task: each task's mean weighted by its number of items.

    Tasks without a number (a word, NaN) are left out; ``"not estimable"`` if none is left.
    """
    pairs = [
        (float(value), size if weight_by_size else 1)
        for value, size in zip(values, sizes, strict=True)
        if isinstance(value, (int, float)) and not math.isnan(value)
    ]
    total = sum(size for _, size in pairs)
    return sum(value * size for value, size in pairs) / total if total else "not estimable"
