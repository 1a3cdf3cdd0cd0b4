"""What a discovery run measured of every head, and how it travels inside a head set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet


@dataclass(frozen=True)
class HeadFacts:
    """What a discovery run measured of *every* head; control families that match on attention need it.

    Attributes:
        image_mass: mean attention mass on image tokens, in [0, 1].
        sink_mass: mean mass on the first token, in [0, 1]; empty where not measured.
        text_mass: mean mass on all other tokens, in [0, 1]; empty where not measured.
        scores: discovery score of the setting that the set came from; empty where not measured.
    """

    image_mass: Mapping[Head, float] = field(default_factory=dict)
    sink_mass: Mapping[Head, float] = field(default_factory=dict)
    text_mass: Mapping[Head, float] = field(default_factory=dict)
    scores: Mapping[Head, float] = field(default_factory=dict)

    def to_dict(self, geometry: Geometry) -> dict[str, list[list[float]]]:
        """Plain JSON value: per measure one list of numbers a layer."""
        out: dict[str, list[list[float]]] = {}
        for name, values in vars(self).items():
            if values:
                out[name] = [
                    [float(f"{values[Head(layer, h)]:.6g}") for h in geometry.pool(layer)]
                    for layer in range(len(geometry.heads))
                ]
        return out


def facts_from_dict(value: Mapping[str, Sequence[Sequence[float]]], geometry: Geometry, source: str) -> HeadFacts:
    """Read what :meth:`HeadFacts.to_dict` wrote; ``source`` names the file in errors."""
    measures: dict[str, dict[Head, float]] = {}
    for name, rows in value.items():
        if tuple(len(row) for row in rows) != geometry.heads:
            raise HarnessHeadsError(f"{source}: per-head {name} does not fit the geometry; re-run discovery")
        measures[name] = {Head(layer, h): row[h] for layer, row in enumerate(rows) for h in range(len(row))}
    return HeadFacts(**measures)


def facts_of(head_set: HeadSet) -> HeadFacts | None:
    """The facts that a discovery run left in the set's provenance, or ``None`` (published sets have none)."""
    value = head_set.provenance.get("facts")
    return None if value is None else facts_from_dict(value, head_set.geometry, f"head set {head_set.name!r}")
