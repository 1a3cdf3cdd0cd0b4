"""Probe, ProbeResult and ItemRecord: what a task asks, what a model answers, what an item leaves behind.

They travel as JSON: a Probe inside ``Instance.metadata["probe"]``, a ProbeResult as the response string of one request,
an ItemRecord as the metric ``record`` of one document. Every one carries an integer ``schema``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness_heads.conditions import Condition, condition_from_dict
from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import Region, region_from_dict

SCHEMA = 1
Ask = Literal["options", "locate", "generate"]

LogProbs = Mapping[str, Mapping[str, Mapping[str, float]]]
"""``logprobs[condition][set key][option]``: natural log of the probability over the whole vocabulary."""


@dataclass(frozen=True)
class Probe:
    """What a task asks of one request (one arm of one item).

    Attributes:
        ask: ``options`` (log-probabilities of the option letters), ``locate`` (a box), ``generate`` (text).
        task: task name.
        item: item id (content hash).
        arm: ``matched`` | ``mismatched`` | ``blank`` | ``text`` | ``oracle`` | ``grid`` | ...
        options: the answer strings to score, for example ``("A", "B", "C", "D")``.
        conditions: what is done; empty for arms that are measured without intervention (audits).
        regions: named boxes in pixels of the image as shown.
        expression: the referring expression, for ``locate``.
        overrides: which of ``rows``, ``beta`` the run may replace.
    """

    ask: Ask
    task: str
    item: str
    arm: str
    options: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    regions: Mapping[str, Region] = field(default_factory=dict)
    expression: str | None = None
    overrides: tuple[str, ...] = ("rows", "beta")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {
            "schema": SCHEMA,
            "ask": self.ask,
            "task": self.task,
            "item": self.item,
            "arm": self.arm,
            "options": list(self.options),
            "conditions": [c.to_dict() for c in self.conditions],
            "regions": {name: region.to_dict() for name, region in self.regions.items()},
            "expression": self.expression,
            "overrides": list(self.overrides),
        }


def probe_from_dict(value: Mapping[str, Any]) -> Probe:
    """Read what :meth:`Probe.to_dict` wrote."""
    _check_schema("probe", value)
    return Probe(
        value["ask"],
        value["task"],
        value["item"],
        value["arm"],
        tuple(value["options"]),
        tuple(condition_from_dict(c) for c in value["conditions"]),
        {name: region_from_dict(r) for name, r in value["regions"].items()},
        value["expression"],
        tuple(value["overrides"]),
    )


@dataclass(frozen=True)
class ProbeResult:
    """What a wrapped model answers to one probe.

    Attributes:
        logprobs: ``[condition][set key][option]``, natural log over the whole vocabulary. Condition ``"none"`` holds
            the empty set alone and is there for arms without a condition. In every condition the empty set is the
            baseline of its own batch.
        text: ``[condition][set key]`` raw answers of ``locate`` and ``generate``.
        boxes: ``[condition][set key]`` box ``[x0, y0, x1, y1]`` in pixels of the image as shown, or ``None`` where the
            answer could not be parsed.
        dose: ``[condition][set key] -> {"before", "after"}``: mean over the set's heads and the scope's rows of the
            attention mass on the condition's keys, in the clean and in the intervened pass.
        option_mass: ``[condition][set key]`` probability of all options together.
        image_sha: SHA-256 of every image as the processor saw it.
        numerics: ``{"dtype", "kernel", "baseline_gap"}``; the gap is the largest difference of option log-probabilities
            between the engine's empty set and the host's own forward.
        run: settings, tables and versions; only in the first response of each rank.
    """

    logprobs: LogProbs = field(default_factory=dict)
    text: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    boxes: Mapping[str, Mapping[str, list[float] | None]] = field(default_factory=dict)
    dose: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    option_mass: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    image_sha: tuple[str, ...] = ()
    numerics: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """The response string."""
        value = {"schema": SCHEMA, **{k: v for k, v in vars(self).items() if v not in ({}, (), None)}}
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def probe_result_from_json(text: str) -> ProbeResult | None:
    """Read a response string; ``None`` where a stock model answered in plain words instead."""
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, TypeError):
        return None
    if not isinstance(value, dict) or "schema" not in value:
        return None
    return probe_result_from_dict(value)


def probe_result_from_dict(value: Mapping[str, Any]) -> ProbeResult:
    """Read the parsed JSON of :meth:`ProbeResult.to_json`."""
    _check_schema("probe result", value)
    rest = {k: v for k, v in value.items() if k != "schema"}
    rest["image_sha"] = tuple(rest.get("image_sha", ()))
    return ProbeResult(**rest)


@dataclass(frozen=True)
class ItemRecord:
    """What one item leaves behind; lmms-eval's samples file holds it as ``record``.

    Attributes:
        item: content hash of the item (images, question, options, arm layout): :func:`item_id`.
        task, recipe, recipe_version: what built it.
        seed: the task's seed.
        index: position in the task's document order.
        n_planned: items that the task plans (a smaller document count is flagged in evidence).
        cluster: image or strip that several items may share; resampled whole.
        options: option texts in letter order.  letters: the letters.  correct: index of the right option.
        arms: ``arm -> ProbeResult`` as plain JSON (``None`` where a stock model answered).
        plain: ``arm -> text`` of a stock model.
        regions: ``arm -> {name: region}`` as plain JSON.
        images: SHA-256 of the images as the task made them, ``arm -> [hash]``.
        extra: recipe-specific facts (target and distractor cells, gold box, category ...).
    """

    item: str
    task: str
    recipe: str
    recipe_version: int
    seed: int
    index: int
    n_planned: int
    cluster: str
    options: tuple[str, ...]
    letters: tuple[str, ...]
    correct: int | None
    arms: Mapping[str, Mapping[str, Any] | None]
    plain: Mapping[str, str] = field(default_factory=dict)
    regions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    images: Mapping[str, list[str]] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {"schema": SCHEMA, **vars(self), "options": list(self.options), "letters": list(self.letters)}


def item_record_from_dict(value: Mapping[str, Any]) -> ItemRecord:
    """Read what :meth:`ItemRecord.to_dict` wrote."""
    _check_schema("item record", value)
    rest = {k: v for k, v in value.items() if k != "schema"}
    return ItemRecord(**{**rest, "options": tuple(rest["options"]), "letters": tuple(rest["letters"])})


def item_id(content: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 of an item's content (JSON with sorted keys): equal content, equal id."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_schema(what: str, value: Mapping[str, Any]) -> None:
    if value.get("schema") != SCHEMA:
        raise HarnessHeadsError(f"{what}: schema {value.get('schema')!r} is unknown, this version reads {SCHEMA}")
