"""RunInfo: what a run says about itself, read from its answers or from run.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from harness_heads.conditions import Condition, condition_from_dict
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, HeadSet, ModelRef, SetEntry, SetTable, head_set_from_dict, set_table_from_list
from harness_heads.protocol.malformed import check_fields, readable
from harness_heads.protocol.plan import plan_from_dict

SCHEMA = 1
_SHAPES: Mapping[str, tuple[type, ...]] = {
    "model": (Mapping,),
    **dict.fromkeys(("sets", "conditions"), (list,)),
    **dict.fromkeys(("settings", "sources", "versions", "expected_items"), (Mapping, NoneType)),
    "op": (str, NoneType),
    "plan": (str, Mapping, NoneType),
}
"""What a run block's fields are."""


@dataclass(frozen=True)
class RunInfo:
    """What a run says about itself: settings, model, both tables, versions.

    Attributes:
        value: the run's own JSON, as the first response of each rank carries it.
        sets: the head sets; identity digests were checked.
        sources: discovered sets with scores and provenance, by key.
        conditions: everything that was done.
        expected: items that each task was to answer, where run.json says so.
    """

    value: Mapping[str, Any]
    sets: SetTable
    sources: Mapping[str, HeadSet]
    conditions: tuple[Condition, ...]
    expected: Mapping[str, int] = field(default_factory=dict)

    @property
    def model(self) -> Mapping[str, Any]:
        """Model id, revision, dtype, attention, host, family, quantisation, geometry."""
        model: Mapping[str, Any] = self.value["model"]
        return model

    @property
    def settings(self) -> Mapping[str, Any]:
        """Model arguments with defaults filled in."""
        settings: Mapping[str, Any] = self.value.get("settings") or {}
        return settings

    @property
    def op(self) -> str:
        """mask, steer or ablate."""
        return str(self.value.get("op", ""))

    @property
    def geometry(self) -> Geometry:
        """Heads per layer."""
        return self.sets.baseline.heads.geometry

    @property
    def plan_digest(self) -> str | None:
        """Digest of the plan that the run was started with."""
        return self.value.get("plan")

    @property
    def tested(self) -> tuple[SetEntry, ...]:
        """Sets that are put to the test: discovered ones and their subsets."""
        return self.sets.role("discovered") + self.sets.role("subset")

    @property
    def digest(self) -> str:
        """Digest of what makes two ranks the same run (12 hex digits); the self-check's floats may differ by rank."""
        same = {k: self.value.get(k) for k in ("settings", "model", "sets", "conditions", "op", "plan", "seed")}
        return hashlib.sha256(canonical(same).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {**self.value, "expected_items": dict(self.expected)}


def run_info_from_dict(value: Mapping[str, Any], source: str) -> RunInfo:
    """Read a run's JSON; ``source`` names the file in errors.

    Raises:
        HarnessHeadsError: an unknown schema, a missing or malformed field, or sets that do not fit their digests.
    """
    if not isinstance(value, Mapping):
        raise HarnessHeadsError(f"{source}: the run block is no JSON object; it was cut off or edited")
    check_fields(value, _SHAPES, f"{source}: the run block")
    if value.get("schema", SCHEMA) != SCHEMA:
        raise HarnessHeadsError(f"{source}: run schema {value['schema']!r} is unknown, this version reads {SCHEMA}")
    try:
        with readable(f"{source}: the run block"):
            return _run_info(value, source)
    except HarnessHeadsError as error:
        # what head sets and conditions find wrong with themselves does not know where they stood
        if source in str(error):
            raise
        raise HarnessHeadsError(f"{source}: {error}") from error


def _run_info(value: Mapping[str, Any], source: str) -> RunInfo:
    model = value["model"]
    shape = model["geometry"]
    kv = shape.get("kv_heads")  # empty where the model side does not know them
    geometry = Geometry(tuple(shape["heads"]), tuple(kv) if kv else None)
    ref = ModelRef(model["id"], model.get("revision"))
    sets = set_table_from_list(value["sets"], ref, geometry)
    for row, entry in zip(value["sets"], sets, strict=True):
        if row.get("key", entry.key) != entry.key:
            raise HarnessHeadsError(f"{source}: set {row['name']!r} is keyed {row['key']}, its heads give {entry.key}")
    sources = {k: head_set_from_dict(v, f"{source}: source of {k}") for k, v in (value.get("sources") or {}).items()}
    for key, found in sources.items():
        if found.key != key:
            raise HarnessHeadsError(f"{source}: source {found.name!r} does not hold the heads of set {key}")
    conditions = tuple(condition_from_dict(c) for c in value["conditions"])
    expected = {str(k): int(v) for k, v in (value.get("expected_items") or {}).items()}
    kept = {k: v for k, v in value.items() if k not in ("expected_items", "tasks")}
    if isinstance(kept.get("plan"), Mapping):
        kept["plan"] = plan_from_dict(kept["plan"], source).digest
    return RunInfo(kept, sets, sources, conditions, expected)


def canonical(value: Any) -> str:
    """JSON text with sorted keys: equal values, equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
