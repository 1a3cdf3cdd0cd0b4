"""What a discovery leaves behind: per-sample scores, the ranked head set with its provenance, the overview."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from harness_heads.controls import HeadFacts
from harness_heads.discovery.overlap import Aggregate, Scored, SplitHalf, split_half
from harness_heads.discovery.overview import draw, words
from harness_heads.discovery.score import Scores, omega_freq, omega_mean, ordered_scores, top_heads, top_per_layer
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, load_head_set

PER_LAYER = "top k per layer"
"""Value of a set's provenance ``selection`` where it holds the best heads of every layer."""
SCORES, HEAD_SET, PICTURE, WORDS = "scores.safetensors", "head_set.json", "overview.svg", "overview.md"


@dataclass(frozen=True, eq=False)
class Finding:
    """One setting or method, scored.

    Attributes:
        name: of the setting or method.
        words: what was done, in words.
        per_sample: (N, L, H), NaN where a head is absent.
        scores: (L, H), the aggregate that heads are ranked by.
        head_set: the ranked set.
        ids, clusters: of the N samples.
        stability: overlap of two halves, ``None`` with fewer than two clusters.
        frequency: top K per sample of Omega = freq, ``None`` for the mean.
    """

    name: str
    words: str
    per_sample: Scores
    scores: Scores
    head_set: HeadSet
    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    stability: SplitHalf | None
    frequency: int | None = None


def find(
    name: str,
    description: str,
    per_sample: Scores,
    image_mass: Scores,
    sink_mass: Scores,
    *,
    model: ModelRef,
    geometry: Geometry,
    slug: str,
    ids: Sequence[str],
    clusters: Sequence[str],
    k: int,
    per_layer: bool = False,
    frequency: int | None = None,
    provenance: Mapping[str, Any],
    splits: int = 200,
) -> Finding:
    """Rank heads and make the head set.

    Args:
        per_sample: (N, L, H) scores.  image_mass, sink_mass: (N, L, H) attention mass in the same rows.
        k: heads of the set, or of every layer with ``per_layer``.
        frequency: top K per sample of Omega = freq, ``None`` for the mean.
        provenance: how the scores came about; size, stability and facts are added.
        splits: half-splits for the stability.
    """
    aggregate = omega(frequency)
    scores = aggregate(per_sample)
    heads = (top_per_layer if per_layer else top_heads)(scores, geometry, k)
    stability = None
    if len(set(clusters)) >= 2 and not per_layer:
        scored = Scored(name, geometry, per_sample, tuple(clusters), aggregate)
        stability = split_half(scored, scored, k, splits=splits)
    facts = HeadFacts(
        image_mass=_by_head(omega_mean(image_mass), geometry),
        sink_mass=_by_head(omega_mean(sink_mass), geometry),
        text_mass=_by_head(1.0 - omega_mean(image_mass) - omega_mean(sink_mass), geometry),
        scores=_by_head(scores, geometry),
    )
    notes: dict[str, Any] = {
        "kind": "discovered",
        "setting": name,
        "words": description,
        "samples": len(per_sample),
        "k": k,
        "selection": PER_LAYER if per_layer else "flat top k, ties by (layer, head)",
        "share_of_heads": round(len(heads) / geometry.total, 4),
        **provenance,
    }
    if stability is not None:
        notes["stability"] = {
            "half": stability.half,
            "splits": stability.splits,
            "overlap_of_halves": round(stability.own[0], 2),
            "chance": round(stability.chance, 2),
        }
    notes["facts"] = facts.to_dict(geometry)
    rounded = tuple(float(f"{s:.6g}") for s in ordered_scores(scores, heads))
    head_set = HeadSet(f"{slug}/{name}", model, geometry, heads, rounded, notes)
    return Finding(name, description, per_sample, scores, head_set, tuple(ids), tuple(clusters), stability, frequency)


def omega(frequency: int | None) -> Aggregate:
    """Sample aggregation: the share of samples in which a head is among the top ``frequency``, or the mean."""
    return omega_mean if frequency is None else partial(omega_freq, top=frequency)


def _by_head(values: Scores, geometry: Geometry) -> dict[Head, float]:
    return {h: float(values[h.layer, h.head]) for h in geometry.all_heads()}


def write(finding: Finding, folder: Path) -> None:
    """Write the four files of a setting into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    geometry = finding.head_set.geometry
    meta = {
        "schema": 2,
        "name": finding.head_set.name,
        "model": finding.head_set.model.id,
        "geometry": {"heads": geometry.heads, "kv_heads": geometry.kv_heads},
        "ids": finding.ids,
        "clusters": finding.clusters,
        "frequency": finding.frequency,
    }
    tensors = {
        "scores": np.ascontiguousarray(finding.per_sample, dtype=np.float32),
        "mean": np.ascontiguousarray(finding.scores, dtype=np.float32),
    }
    # one entry: safetensors writes several in no fixed order, and equal runs should be equal files
    save_file(tensors, folder / SCORES, {"discovery": json.dumps(meta)})
    finding.head_set.save(folder / HEAD_SET)
    (folder / PICTURE).write_text(draw(finding.name, finding.scores, finding.head_set), encoding="utf-8")
    (folder / WORDS).write_text(
        words(finding.words, finding.scores, finding.head_set, len(finding.ids), finding.stability), encoding="utf-8"
    )


@dataclass(frozen=True, eq=False)
class Stored:
    """A discovery folder read back."""

    head_set: HeadSet
    per_sample: NDArray[np.float64]
    scores: NDArray[np.float64]
    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    frequency: int | None

    def scored(self) -> Scored:
        """For overlaps and ceilings: samples are combined as the set's own method does."""
        return Scored(self.head_set.name, self.head_set.geometry, self.per_sample, self.clusters, omega(self.frequency))


def read(folder: Path) -> Stored:
    """Read a discovery folder.

    Raises:
        HarnessHeadsError: a folder without scores, or a file that is damaged.
    """
    path = folder / SCORES
    if not path.exists():
        raise HarnessHeadsError(f"{folder}: no {SCORES} there; give a folder that `harness-heads discover` wrote")
    try:
        with safe_open(str(path), framework="numpy") as file:
            meta = json.loads(file.metadata()["discovery"])
            per_sample = file.get_tensor("scores").astype(np.float64)
            scores = file.get_tensor("mean").astype(np.float64)
        ids, clusters, frequency = tuple(meta["ids"]), tuple(meta["clusters"]), meta["frequency"]
    except (KeyError, TypeError) as error:
        raise HarnessHeadsError(f"{path}: it is of another version; run the discovery again") from error
    except Exception as error:  # safetensors raises its own, undocumented type
        raise HarnessHeadsError(f"{path}: it cannot be read ({error})") from error
    return Stored(load_head_set(folder / HEAD_SET), per_sample, scores, ids, clusters, frequency)
