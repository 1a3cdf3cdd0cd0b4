"""Discovery folders as a second input: what split halves of their samples share, alone and with each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import HeadSet, load_head_set
from harness_heads.protocol import statistics as st
from harness_heads.protocol.resampled import SEED

SCORES, HEAD_SET = "scores.safetensors", "head_set.json"
SPLITS = 200


class Discovery(NamedTuple):
    """A discovery folder: its set, its scores per sample, shape [N, heads], and the clusters of its samples."""

    heads: HeadSet
    scores: st.Floats
    clusters: tuple[str, ...]


def is_discovery(path: Path) -> bool:
    """Whether a folder is what ``harness-heads discover`` wrote for one setting."""
    return (path / SCORES).is_file() and (path / HEAD_SET).is_file()


def read_discovery(path: Path) -> Discovery:
    """Read one folder; layers without softmax heads (NaN) are left out."""
    try:
        with safe_open(str(path / SCORES), framework="numpy") as file:
            clusters = tuple(json.loads((file.metadata() or {})["clusters"]))
            values = file.get_tensor("scores").astype(np.float64)
    except Exception as error:  # safetensors raises a type of its own
        raise HarnessHeadsError(f"{path / SCORES} cannot be read: {error}") from error
    heads = load_head_set(path / HEAD_SET)
    flat = np.stack([values[:, h.layer, h.head] for h in heads.geometry.all_heads()], axis=1)
    return Discovery(heads, flat, clusters)


def overlaps(found: Sequence[Discovery], splits: int = SPLITS) -> list[dict[str, Any]]:
    """Shared heads over half splits of every comparable pair, with both settings' own halves (paper A, Table 20).

    Pairs need the same geometry, set size and samples: only then can both be split alike.
    """
    out = []
    ordered = sorted(found, key=lambda d: (d.heads.name, d.heads.key))
    for one, two in combinations(ordered, 2):
        k = len(one.heads)
        same = one.heads.geometry.heads == two.heads.geometry.heads and k == len(two.heads)
        if not same or one.clusters != two.clusters or len(set(one.clusters)) < 2:
            continue
        codes = st.cluster_codes(one.clusters)
        parts = [
            st.half_split_overlaps(a.scores, b.scores, k, splits, np.random.default_rng(SEED), codes)
            for a, b in ((one, two), (one, one), (two, two))
        ]
        cross, own_a, own_b = parts
        out.append(
            {
                "pair": f"{one.heads.name} / {two.heads.name}",
                "overlap": cross.mean,
                "low": cross.low,
                "high": cross.high,
                "self_a": own_a.mean,
                "self_b": own_b.mean,
                "chance": st.uniform_chance(k, k, one.heads.geometry.total).mean,
                "samples": len(one.clusters),
                "splits": splits,
            }
        )
    return out
