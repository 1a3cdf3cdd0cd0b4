"""What a discovery run measured of every head, and how it travels inside a head set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.heads import Geometry, Head, HeadSet
from harness_heads.plain import entries, mapping, number, shown


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


MEASURES = tuple(f.name for f in fields(HeadFacts))


def facts_from_dict(value: Any, geometry: Geometry, source: str) -> HeadFacts:
    """Read what :meth:`HeadFacts.to_dict` wrote.

    Raises:
        HarnessHeadsError: naming ``source`` and the measure that is unknown, misshapen or holds what is no number.
    """
    measures: dict[str, dict[Head, float]] = {}
    for name, rows in mapping(value, f"{source}: facts").items():
        if name not in MEASURES:
            raise HarnessHeadsError(
                f"{source}: facts holds an unknown measure {shown(name)}{did_you_mean(name, MEASURES)} "
                f"(known: {', '.join(MEASURES)})"
            )
        where = f"{source}: facts.{name}"
        layers = [entries(row, f"{where}[{layer}]") for layer, row in enumerate(entries(rows, where))]
        if tuple(map(len, layers)) != geometry.heads:
            raise HarnessHeadsError(f"{source}: per-head {name} does not fit the geometry; re-run discovery")
        measures[name] = {
            Head(layer, h): number(found, f"{where}[{layer}][{h}]")
            for layer, row in enumerate(layers)
            for h, found in enumerate(row)
        }
    return HeadFacts(**measures)


def facts_of(head_set: HeadSet, source: str | None = None) -> HeadFacts | None:
    """The facts that a discovery run left in the set's provenance, or ``None`` (published sets have none).

    ``source`` names the file in errors; without it the set is named.
    """
    value = head_set.provenance.get("facts")
    where = source or f"head set {head_set.name!r}"
    return None if value is None else facts_from_dict(value, head_set.geometry, where)
