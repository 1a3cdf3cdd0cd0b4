"""Item records -> arrays: one accumulator a task, fed line by line, so that large sample files are never held whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import ItemRecord
from harness_heads.protocol.arrays import Floats
from harness_heads.protocol.evidence import Block, TaskEvidence
from harness_heads.protocol.malformed import WHAT_MENDS, check_fields, readable
from harness_heads.protocol.runs import RunInfo, canonical, run_info_from_dict
from harness_heads.regions import region_from_dict

_MASS_SLACK = 1e-3  # float32 sums of probabilities may pass 1 by this much
_EXPECTED = ("task", "recipe", "recipe_version", "seed", "n_planned", "letters")
_COPY = "the same item twice, with different answers; one folder holds two runs"
_SHAPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("item", "task", "recipe", "cluster"), (str,)),
    **dict.fromkeys(("recipe_version", "seed", "index", "n_planned"), (int,)),
    **dict.fromkeys(("options", "letters"), (list, tuple)),
    **dict.fromkeys(("arms", "plain", "regions", "images", "extra"), (Mapping,)),
    "correct": (int, NoneType),
}
"""What an item record's fields are; later code relies on it."""
_BY_ARM: Mapping[str, tuple[type, ...]] = {
    "arms": (Mapping, NoneType),
    "plain": (str,),
    "regions": (Mapping,),
    "images": (list, tuple),
}
_EXTRA: Mapping[str, tuple[type, ...]] = {
    "correct": (Mapping,),
    "distractor_option": (int, NoneType),
    "audit": (Mapping,),
    "cells": (list, tuple),
}


def check_record(value: Mapping[str, Any], where: str) -> None:
    """Hold a record's JSON to the types of its fields.

    Raises:
        HarnessHeadsError: naming the first field, arm or option number that cannot be.
    """
    check_fields(value, _SHAPES, where)
    for name, types in _BY_ARM.items():
        check_fields(value[name], dict.fromkeys(value[name], types), f"{where}, {name}")
    for arm, named in value["regions"].items():
        for name, region in named.items():
            with readable(f"{where}, region {name} of arm {arm}"):
                region_from_dict(region)
    texts = {"options": value["options"], "letters": value["letters"], **value["images"]}
    for name, held in texts.items():
        check_fields(dict(enumerate(held)), dict.fromkeys(range(len(held)), (str,)), f"{where}, {name}")
    extra = value["extra"]
    check_fields(extra, {k: types for k, types in _EXTRA.items() if k in extra}, f"{where}, extra")
    check_fields(extra.get("correct", {}), dict.fromkeys(extra.get("correct", {}), (int,)), f"{where}, extra.correct")
    for right in (value["correct"], extra.get("distractor_option"), *extra.get("correct", {}).values()):
        if right is not None and not 0 <= right < len(value["letters"]):
            raise HarnessHeadsError(f"{where}: option {right} of {len(value['letters'])} letters: {WHAT_MENDS}")


@dataclass
class _Row:
    """One item while its task is being read."""

    record: ItemRecord
    blocks: dict[tuple[str, str], tuple[Floats, Floats, Floats | None]]


@dataclass
class TaskReader:
    """Collects the records of one task of one run; :meth:`finish` sorts and stacks them."""

    where: str
    rows: dict[str, _Row] = field(default_factory=dict)
    sets: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    runs: list[RunInfo] = field(default_factory=list)
    seen_runs: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    gap: float = math.nan
    first: ItemRecord | None = None

    def add(self, record: ItemRecord) -> None:
        """Take one record in.

        Raises:
            HarnessHeadsError: naming item, arm, condition and set of the first value that cannot be.
        """
        if self.first is None:
            self.first = record
        for name in _EXPECTED:
            if getattr(record, name) != getattr(self.first, name):
                raise HarnessHeadsError(
                    f"{self.where}: item {record.item} has {name} {getattr(record, name)!r}, the first item "
                    f"{getattr(self.first, name)!r}; these are two different tasks"
                )
        row = _Row(record, {})
        for arm, answer in record.arms.items():
            if answer is not None:
                self._answer(row, arm, answer)
        known = self.rows.get(record.item)
        if known is not None and not _same(known, row):
            raise HarnessHeadsError(f"{self.where}: item {record.item}: {_COPY}")
        if known is not None and known.record.index != record.index:
            raise HarnessHeadsError(
                f"{self.where}: item {record.item} stands at {known.record.index} and {record.index}; "
                "ids must be unique"
            )
        # kept without its answers, which now live in arrays
        slim = {**vars(record), "arms": dict.fromkeys(record.arms)}
        self.rows[record.item] = _Row(ItemRecord(**slim), row.blocks)

    def _answer(self, row: _Row, arm: str, answer: Mapping[str, Any]) -> None:
        where = f"{self.where}: item {row.record.item}, arm {arm}"
        run = answer.get("run")
        if run is not None:
            text = canonical({k: v for k, v in run.items() if k != "proof"})
            if text not in self.seen_runs:
                self.seen_runs.add(text)
                self.runs.append(run_info_from_dict(run, where))
        numerics = answer.get("numerics") or {}
        self.dtypes |= {str(numerics[k]) for k in ("dtype",) if k in numerics}
        self.kernels |= {str(numerics[k]) for k in ("kernel",) if k in numerics}
        gap = numerics.get("baseline_gap")
        if gap is not None:
            self.gap = float(np.fmax(self.gap, float(gap)))
        dose = answer.get("dose") or {}
        answered = answer.get("logprobs") or {}
        for condition, by_set in answered.items():
            order = self._order((arm, condition), by_set, where)
            logprobs = _logprobs(by_set, order, row.record.letters, f"{where}, condition {condition}")
            row.blocks[(arm, condition)] = (logprobs, _doses(dose.get(condition, {}), order), None)
        for condition, by_set in (answer.get("boxes") or {}).items():
            order = self._order((arm, condition), by_set, where)
            blank = np.empty((len(order), 0))
            boxes = np.array([[math.nan] * 4 if by_set[k] is None else by_set[k] for k in order], np.float64)
            row.blocks[(arm, condition)] = (blank, _doses(dose.get(condition, {}), order), boxes)

    def _order(self, cell: tuple[str, str], by_set: Mapping[str, Any], where: str) -> tuple[str, ...]:
        """Set keys of a cell, the same for every item: a fan with a hole is refused."""
        order = self.sets.setdefault(cell, tuple(sorted(by_set)))
        if len(by_set) != len(order) or any(key not in by_set for key in order):
            odd = sorted(set(order) ^ set(by_set))
            raise HarnessHeadsError(
                f"{where}, condition {cell[1]}: set {odd[0]} is answered for some items only; the fan is incomplete, "
                "run again with the same journal"
            )
        return order

    def finish(self, run: int) -> TaskEvidence:
        """The task's evidence, items sorted by id."""
        if self.first is None:
            raise HarnessHeadsError(f"{self.where}: no item record; was the task run with --log_samples?")
        order = sorted(self.rows)
        records = [self.rows[item].record for item in order]
        cells = sorted({cell for row in self.rows.values() for cell in row.blocks})
        blocks = {}
        for cell in cells:
            parts = []
            for item in order:
                part = self.rows[item].blocks.get(cell)
                if part is None:
                    raise HarnessHeadsError(
                        f"{self.where}: item {item} has no answer for arm {cell[0]}, condition {cell[1]}; "
                        "the fan is incomplete, run again with the same journal"
                    )
                parts.append(part)
            boxes = None if parts[0][2] is None else np.stack([p[2] for p in parts if p[2] is not None])
            dose = np.stack([p[1] for p in parts])
            stacked = np.stack([p[0] for p in parts])
            blocks[cell] = Block(self.sets[cell], stacked, dose[..., 0], dose[..., 1], boxes)
        return TaskEvidence(
            run=run,
            task=self.first.task,
            recipe=self.first.recipe,
            recipe_version=self.first.recipe_version,
            seed=self.first.seed,
            n_planned=self.first.n_planned,
            letters=tuple(self.first.letters),
            items=tuple(order),
            index=tuple(r.index for r in records),
            clusters=tuple(r.cluster for r in records),
            options=tuple(tuple(r.options) for r in records),
            correct=_correct(records),
            distractor=np.array([_int(r.extra.get("distractor_option")) for r in records], np.int64),
            blocks=blocks,
            plain=_plain(records),
            details=tuple({"regions": r.regions, "images": r.images, "extra": r.extra} for r in records),
            numerics={"dtype": sorted(self.dtypes), "kernel": sorted(self.kernels), "baseline_gap": _json(self.gap)},
        )


def read_records(records: Iterable[ItemRecord], where: str) -> TaskReader:
    """A reader fed with ``records``."""
    reader = TaskReader(where)
    for record in records:
        reader.add(record)
    return reader


def _logprobs(
    by_set: Mapping[str, Mapping[str, float]], order: Sequence[str], letters: Sequence[str], where: str
) -> Floats:
    try:
        out = np.array([[by_set[key][letter] for letter in letters] for key in order], np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise HarnessHeadsError(f"{where}: a log-probability is missing or no number ({error})") from error
    # comparisons are written so that NaN fails them
    bad = ~(out <= _MASS_SLACK)
    if bad.any():
        s, o = np.argwhere(bad)[0]
        raise HarnessHeadsError(
            f"{where}, set {order[s]}: log-probability of {letters[o]} is {out[s, o]}; it must be a number of at most 0"
        )
    mass = np.exp(out).sum(axis=1)
    if (mass > 1 + _MASS_SLACK).any():
        s = int(np.argmax(mass))
        raise HarnessHeadsError(f"{where}, set {order[s]}: the options' probabilities sum to {mass[s]:.4f}, above 1")
    return out


def _doses(by_set: Mapping[str, Mapping[str, float]], order: Sequence[str]) -> Floats:
    blank: Mapping[str, float] = {}
    rows = [by_set.get(key) or blank for key in order]
    return np.array([[_number(row.get("before")), _number(row.get("after"))] for row in rows], np.float64)


def _correct(records: Sequence[ItemRecord]) -> dict[str, Any]:
    """Right option per arm; under ``""`` the one that holds where an arm names none of its own."""
    out = {"": np.array([_int(r.correct) for r in records], np.int64)}
    arms = sorted({arm for r in records for arm in r.extra.get("correct", {})})
    for arm in arms:
        out[arm] = np.array([_int(r.extra.get("correct", {}).get(arm, r.correct)) for r in records], np.int64)
    return out


def _plain(records: Sequence[ItemRecord]) -> dict[str, tuple[str, ...]]:
    arms = sorted({arm for r in records for arm in r.plain})
    return {arm: tuple(r.plain.get(arm, "") for r in records) for arm in arms}


def _same(a: _Row, b: _Row) -> bool:
    """Equal answers: a padding copy of an item is no second item."""
    if a.blocks.keys() != b.blocks.keys() or dict(a.record.plain) != dict(b.record.plain):
        return False
    return all(
        np.array_equal(x, y, equal_nan=True)
        for cell, parts in a.blocks.items()
        for x, y in zip(parts, b.blocks[cell], strict=True)
        if x is not None and y is not None
    )


def _int(value: Any) -> int:
    return -1 if value is None else int(value)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _json(value: float) -> float | None:
    return None if math.isnan(value) else value
