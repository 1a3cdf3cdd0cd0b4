"""HeadSet and SetTable: which heads, of which model, under which identity.

All values are frozen, and what identifies a set is the digest of its model, geometry and sorted (layer, head) pairs:
renaming a set or editing its provenance does not change what it is.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness_heads.errors import HarnessHeadsError
from harness_heads.geometry import Geometry, Head, ModelRef, as_head, geometry_from_dict, model_from_dict
from harness_heads.plain import entries, is_index, is_number, mapping, number, read_json, shown, text

__all__ = [
    "Geometry",
    "Head",
    "HeadSet",
    "ModelRef",
    "SetEntry",
    "SetTable",
    "as_head",
    "empty_set",
    "head_set_from_dict",
    "load_head_set",
    "set_table_from_list",
]

SCHEMA = 1
CONTROL_NOTES = ("pool", "overlap", "image_mass")  # what a table says of a draw beside its heads
KEY_LENGTH = 16  # hex digits of an identity digest that key tables and records: 64 bits, no clash within a run


@dataclass(frozen=True)
class HeadSet:
    """An ordered set of heads of one model.

    Attributes:
        name: what users type, for example ``tiny-digits/dg-ref-qsp``.
        model: the weights that the set was found on.
        geometry: heads per decoder layer of that model.
        heads: the heads, best first.
        scores: one discovery score per head, or ``None`` where the source gives none.
        provenance: how the set came about (setting, corpus, rows, options, versions), free JSON.
    """

    name: str
    model: ModelRef
    geometry: Geometry
    heads: tuple[Head, ...]
    scores: tuple[float | None, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self) -> None:
        # a Head is a tuple that takes anything; here it is two whole numbers, or an error
        object.__setattr__(self, "heads", tuple(as_head(head, f"head set {self.name!r}") for head in self.heads))
        if not self.scores:
            object.__setattr__(self, "scores", (None,) * len(self.heads))
        if len(self.scores) != len(self.heads):
            raise HarnessHeadsError(f"head set {self.name!r}: {len(self.scores)} scores for {len(self.heads)} heads")
        for head, score in zip(self.heads, self.scores, strict=True):
            self.geometry.check(head, self.name)
            if score is not None and not is_number(score):
                raise HarnessHeadsError(
                    f"head set {self.name!r}: {head} has score {shown(score)}; give a finite number or null"
                )
        for head, count in Counter(self.heads).items():
            if count > 1:
                raise HarnessHeadsError(f"head set {self.name!r}: {head} is named {count} times; name it once")

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[Head]:
        return iter(self.heads)

    @cached_property
    def identity(self) -> str:
        """SHA-256 over model id, geometry and sorted pairs (64 hex digits); order, name and scores are left out."""
        payload = {"model": self.model.id, "geometry": list(self.geometry.heads), "heads": sorted(self.heads)}
        return hashlib.sha256(json.dumps(payload, separators=(",", ":")).encode()).hexdigest()

    @property
    def key(self) -> str:
        """First 16 hex digits of the identity: the key of tables and records."""
        return self.identity[:KEY_LENGTH]

    @property
    def per_layer(self) -> tuple[int, ...]:
        """Heads of the set in each decoder layer."""
        counts = Counter(head.layer for head in self.heads)
        return tuple(counts[layer] for layer in range(len(self.geometry.heads)))

    def top(self, k: int) -> HeadSet:
        """The first ``k`` heads, a set of its own with its own identity."""
        if not is_index(k) or not 1 <= k <= len(self.heads):
            raise HarnessHeadsError(f"head set {self.name!r} holds {len(self.heads)} heads; top_k={k} cannot be cut")
        if k == len(self.heads):
            return self
        return replace(self, name=f"{self.name}@top{k}", heads=self.heads[:k], scores=self.scores[:k])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value; :func:`head_set_from_dict` reads it back."""
        geometry: dict[str, Any] = {"heads": list(self.geometry.heads)}
        if self.geometry.kv_heads is not None:
            geometry["kv_heads"] = list(self.geometry.kv_heads)
        return {
            "schema": SCHEMA,
            "name": self.name,
            "model": {"id": self.model.id, "revision": self.model.revision},
            "geometry": geometry,
            "heads": [[h.layer, h.head, s] for h, s in zip(self.heads, self.scores, strict=True)],
            "provenance": dict(self.provenance),
        }

    def save(self, path: Path) -> None:
        """Write the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """Text of the JSON file, one head a line so that version control shows what changed."""
        value = self.to_dict()
        lines = [f' "{key}": {_compact(value[key])}' for key in ("schema", "name", "model", "geometry")]
        lines.append(' "heads": [\n' + ",\n".join(f"  {_compact(row)}" for row in value["heads"]) + "\n ]")
        notes = ",\n".join(f"  {_compact(key)}: {_compact(note)}" for key, note in value["provenance"].items())
        lines.append(f' "provenance": {{\n{notes}\n }}')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def empty_set(model: ModelRef, geometry: Geometry) -> HeadSet:
    """The set that touches nothing: its condition is the baseline of every run."""
    return HeadSet("empty", model, geometry, ())


def head_set_from_dict(value: Any, source: str) -> HeadSet:
    """Read what :meth:`HeadSet.to_dict` wrote.

    Raises:
        HarnessHeadsError: naming ``source`` and the first thing that is wrong with it.
    """
    if not isinstance(value, dict):
        raise HarnessHeadsError(f"{source}: a head set is a JSON object, this is a {type(value).__name__}")
    for required in ("schema", "name", "model", "geometry", "heads"):
        if required not in value:
            raise HarnessHeadsError(f"{source}: head set without {required!r}; see docs/head-sets.md")
    if value["schema"] is True or value["schema"] != SCHEMA:
        raise HarnessHeadsError(
            f"{source}: head-set schema {shown(value['schema'])} is unknown, this version reads {SCHEMA}"
        )
    heads, scores = _heads_and_scores(value["heads"], source)
    name = text(value["name"], f"{source}: name")
    model = model_from_dict(value["model"], source)
    provenance = mapping(value.get("provenance", {}), f"{source}: provenance")
    try:
        return HeadSet(name, model, geometry_from_dict(value["geometry"], source), heads, scores, provenance)
    except HarnessHeadsError as error:
        told = str(error)
        raise HarnessHeadsError(told if told.startswith(source) else f"{source}: {told}") from error


def _heads_and_scores(value: Any, source: str) -> tuple[tuple[Head, ...], tuple[float | None, ...]]:
    heads: list[Head] = []
    scores: list[float | None] = []
    for index, row in enumerate(entries(value, f"{source}: heads")):
        if not isinstance(row, list) or len(row) not in (2, 3):
            raise HarnessHeadsError(f"{source}: {shown(row)} is no head; write [layer, head] or [layer, head, score]")
        if not (is_index(row[0]) and is_index(row[1])):
            raise HarnessHeadsError(
                f"{source}: {shown(row)} is no head; layer and head are whole numbers >= 0, not 12.1"
            )
        heads.append(Head(row[0], row[1]))
        score = row[2] if len(row) == 3 else None
        scores.append(score if score is None else number(score, f"{source}: score of heads[{index}]"))
    return tuple(heads), tuple(scores)


def load_head_set(path: Path) -> HeadSet:
    """Read a head-set file.

    Raises:
        HarnessHeadsError: naming the file and the first thing that is wrong with it.
    """
    return head_set_from_dict(read_json(path, "head-set file"), str(path))


@dataclass(frozen=True)
class SetEntry:
    """One set of a run.

    Attributes:
        role: ``discovered`` | ``subset`` | ``control`` | ``damage`` | ``empty``.
        heads: the set itself.
        family: control family (``layer``, ``any``, ...), ``None`` for sets that are no control.
        parent: key of the set that a control or subset belongs to.
        draw: index of the draw within its family and parent.
        seed: seed of the family's generator.
    """

    role: str
    heads: HeadSet
    family: str | None = None
    parent: str | None = None
    draw: int | None = None
    seed: int | None = None

    @property
    def key(self) -> str:
        """Identity key, with the draw for controls: two draws may coincide and stay two draws."""
        if self.role in ("control", "damage"):
            return f"{self.heads.key}.{self.family}.{(self.parent or '')[:4]}.{self.draw}"
        return self.heads.key


@dataclass(frozen=True)
class SetTable:
    """Every head set of a run; exactly one is empty (the baseline)."""

    entries: tuple[SetEntry, ...]

    def __post_init__(self) -> None:
        for key, count in Counter(entry.key for entry in self.entries).items():
            if count > 1:
                raise HarnessHeadsError(f"set table: set {key} is listed {count} times; name each head set once")
        if sum(entry.role == "empty" for entry in self.entries) != 1:
            raise HarnessHeadsError("set table: exactly one empty set (the baseline) is needed")

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[SetEntry]:
        return iter(self.entries)

    @property
    def baseline(self) -> SetEntry:
        """The empty set."""
        return next(entry for entry in self.entries if entry.role == "empty")

    def role(self, role: str) -> tuple[SetEntry, ...]:
        """Entries of one role, in table order."""
        return tuple(entry for entry in self.entries if entry.role == role)

    def controls(self, parent: str, family: str | None = None) -> tuple[SetEntry, ...]:
        """The control draws of one set, of one family or of all."""
        return tuple(
            e
            for e in self.entries
            if e.role == "control" and e.parent == parent and (family is None or e.family == family)
        )

    def to_list(self) -> list[dict[str, Any]]:
        """Plain JSON rows for ``run.json``."""
        return [
            {
                "key": e.key,
                "identity": e.heads.identity,
                "role": e.role,
                "name": e.heads.name,
                "family": e.family,
                "parent": e.parent,
                "draw": e.draw,
                "seed": e.seed,
                "heads": [list(h) for h in e.heads],
                **{key: e.heads.provenance[key] for key in CONTROL_NOTES if key in e.heads.provenance},
            }
            for e in self.entries
        ]


def set_table_from_list(rows: Sequence[Mapping[str, Any]], model: ModelRef, geometry: Geometry) -> SetTable:
    """Read what :meth:`SetTable.to_list` wrote and check every identity digest.

    Raises:
        HarnessHeadsError: naming the first row that is none, or whose heads do not fit their digest.
    """
    made = []
    for index, row in enumerate(entries(rows, "set table")):
        where = f"set table: row {index}"
        missing = {"name", "heads", "identity", "role", "family", "parent", "draw", "seed"} - mapping(row, where).keys()
        if missing:
            raise HarnessHeadsError(f"{where} has no {sorted(missing)[0]!r}; its file was edited or cut, run it again")
        for key in ("role", "family", "parent"):
            if row[key] is not None:
                text(row[key], f"{where}: {key}")
        pairs = entries(row["heads"], f"{where}: heads")
        notes = {key: row[key] for key in CONTROL_NOTES if key in row}
        heads = HeadSet(text(row["name"], f"{where}: name"), model, geometry, tuple(pairs), provenance=notes)
        if heads.identity != row["identity"]:
            raise HarnessHeadsError(f"set table: the heads of {row['name']!r} do not fit their digest; file was edited")
        made.append(SetEntry(row["role"], heads, row["family"], row["parent"], row["draw"], row["seed"]))
    return SetTable(tuple(made))


def _compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False)
