"""Discovery folders as a second input: what split halves of their samples share, alone and with each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from harness_heads.discovery.output import PER_LAYER, Stored
from harness_heads.discovery.overlap import SPLITS, split_half


def overlaps(found: Sequence[Stored], splits: int = SPLITS) -> list[dict[str, Any]]:
    """Shared heads over half splits of every comparable pair, with both settings' own halves (paper A, Table 20).

    Pairs need the same geometry and set size, and two clusters of samples each. Sets of the best heads of every layer
    are no top k, and have no ceiling.
    """
    out = []
    flat = (s for s in found if s.head_set.provenance.get("selection") != PER_LAYER)
    ranked = [s for s in flat if len(set(s.clusters)) > 1]
    for one, two in combinations(sorted(ranked, key=lambda s: (s.head_set.name, s.head_set.key)), 2):
        k = len(one.head_set)
        same = one.head_set.geometry.heads == two.head_set.geometry.heads and k == len(two.head_set)
        if not same:
            continue
        split = split_half(one.scored(), two.scored(), k, splits=splits)
        out.append(
            {
                "pair": f"{one.head_set.name} / {two.head_set.name}",
                "overlap": split.cross,
                "low": split.cross_range[0],
                "high": split.cross_range[1],
                "self_a": split.own[0],
                "self_b": split.own[1],
                "chance": split.chance,
                "samples": min(len(one.clusters), len(two.clusters)),
                "splits": split.splits,
            }
        )
    return out
