"""Run folders in lmms-eval's layout, written record by record as the tasks write them, with planted effects.

Nothing here imports the protocol package: what it reads must not be made by its own code. Records and tables go through
the contract classes alone, discovery folders through the writer of ``harness-heads discover``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness_heads.conditions import Condition
from harness_heads.discovery.output import Finding, write
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, SetEntry, SetTable, empty_set
from harness_heads.probes import ItemRecord, ProbeResult, item_id

LETTERS = ("A", "B", "C", "D")
MODEL = ModelRef("tiny-digits", "seed-1")
GEOMETRY = Geometry((16,) * 8, (8,) * 8)
STRANGE = ("naïve <script>alert(1)</script>", "a | b", "two\nlines", "猫")


@dataclass(frozen=True)
class World:
    """What a synthetic run is about; ``replace`` a field to break one thing.

    Attributes:
        effects: true effect of each discovered set, by name.
        control_sd: SD of the true effects of control sets.
        run: overrides of the run block.
    """

    items: int = 24
    controls: int = 20
    families: tuple[str, ...] = ("layer",)
    k: int = 8
    effects: Mapping[str, float] = field(default_factory=lambda: {"dg-ref-qsp": 0.4, "dg-ord-last": 0.0})
    control_sd: float = 0.01
    seed: int = 0
    clusters: int | None = None
    matched: float = 0.97
    mismatched: float = 0.25
    blank: float = 0.25
    oracle: float = 0.97
    n_planned: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    plan: str | None = None
    rows: tuple[tuple[str, ...], ...] = (("all",),)
    betas: tuple[Any, ...] = ("hard",)
    damage: bool = False
    facts: bool = True
    geometry: Geometry = GEOMETRY
    control_mass: float = 0.15
    set_mass: float = 0.19
    mass_after: float = 0.0
    ranks: int = 1
    options: Sequence[str] = STRANGE
    control_k: int | None = None
    discovery: Mapping[str, Any] = field(default_factory=dict)


def discovered(world: World) -> list[HeadSet]:
    """The tested sets, each with scores of every head in its provenance."""
    rng = np.random.default_rng(world.seed + 1)
    out = []
    every = world.geometry.all_heads()
    for name in world.effects:
        scores = rng.beta(1, 12, size=len(every))
        order = np.argsort(-scores, kind="stable")[: world.k]
        facts = {}
        if world.facts:
            mass = rng.beta(2, 20, size=len(every))
            mass[order] += 0.15
            facts = {"image_mass": _per_layer(mass, world.geometry), "scores": _per_layer(scores, world.geometry)}
        provenance = {
            "kind": "discovery",
            "setting": name,
            "corpus": "digits",
            "split": "discover",
            "images": [f"discover-{i}" for i in range(4)],
            "query": "which panel shows the digit?",
            "rows": "query span",
            "strips": 200,
            "normalisation": "none",
            "ties": "layer, then head",
            "facts": facts,
            **world.discovery,
        }
        heads = tuple(every[i] for i in order)
        out.append(
            HeadSet(
                f"tiny-digits/{name}", MODEL, world.geometry, heads, tuple(float(scores[i]) for i in order), provenance
            )
        )
    return out


def write_discoveries(folder: Path, world: World, samples: int = 10) -> list[Path]:
    """One folder a set, by the writer of ``harness-heads discover``: the set's own heads score far above all others."""
    rng = np.random.default_rng(world.seed + 4)
    out = []
    for heads in discovered(world):
        path = folder / heads.name.split("/")[1]
        scores = rng.random((samples, len(world.geometry.heads), max(world.geometry.heads))).astype(np.float32)
        for head in heads:
            scores[:, head.layer, head.head] += 5
        names = tuple(f"strip-{i}" for i in range(samples))
        write(Finding(path.name, "planted", scores, scores.mean(axis=0), heads, names, names, None), path)
        out.append(path)
    return out


def table(world: World) -> SetTable:
    """Empty set, discovered sets, controls per family, and damage sets where asked for."""
    rng = np.random.default_rng(world.seed + 2)
    entries = [SetEntry("empty", empty_set(MODEL, world.geometry))]
    for heads in discovered(world):
        entries.append(SetEntry("discovered", heads))
        for family in world.families:
            for draw in range(world.controls):
                drawn = _draw(heads, family, rng, world)
                entries.append(SetEntry("control", drawn, family, heads.key, draw, 0))
        if world.damage:
            layer = HeadSet("whole", MODEL, world.geometry, tuple(Head(0, h) for h in range(world.geometry.heads[0])))
            entries.append(SetEntry("damage", layer, "damage", heads.key, 0, 0))
    return SetTable(tuple(entries))


def write_ncs(folder: Path, world: World, task: str = "ncs_digits", **kwargs: Any) -> Path:
    """An NCS run: matched, mismatched, blank and text-solvable arm."""
    conditions = [Condition("mask", "image", rows) for rows in world.rows]
    text = [*conditions, Condition("mask", "text")]
    arms = {"matched": conditions, "mismatched": conditions, "blank": [], "text": text}
    return _write(folder, world, task, "mcq_matched_mismatched", "mask", arms, _ncs_p, **kwargs)


def write_cers(folder: Path, world: World, task: str = "cers_digits", **kwargs: Any) -> Path:
    """A CERS run: grid steered both ways, oracle and blank arm."""
    steer = [Condition("steer", keys, beta=b) for b in world.betas for keys in ("correct", "distractor")]
    arms = {"grid": steer, "oracle": [], "blank": []}
    return _write(folder, world, task, "grid_2x2", "steer", arms, _cers_p, **kwargs)


def write_grid_ncs(folder: Path, world: World, task: str = "ncs_grid_digits", **kwargs: Any) -> Path:
    """An NCS run on grids: the answer's cell or the distractor's hidden."""
    hide = [Condition("mask", "correct"), Condition("mask", "distractor")]
    return _write(folder, world, task, "grid_2x2", "mask", {"oracle": hide, "blank": []}, _grid_p, **kwargs)


def write_stock(folder: Path, world: World, task: str = "ncs_digits") -> Path:
    """The same task answered in words by a stock model."""
    lines = []
    for i in range(world.items):
        record = _record(world, task, "mcq_matched_mismatched", i, {}, {})
        answers = {"matched": f"{LETTERS[record.correct or 0]}.", "mismatched": "The answer is B because a car moves."}
        value = record.to_dict() | {"arms": dict.fromkeys(answers), "plain": answers}
        lines.append(json.dumps({"doc_id": i, "record": value}, ensure_ascii=False))
    return _files(folder, task, lines)


def _write(
    folder: Path,
    world: World,
    task: str,
    recipe: str,
    op: str,
    arms: Mapping[str, Sequence[Condition]],
    p_of: Callable[..., float],
    *,
    edit: Callable[[list[dict[str, Any]]], None] | None = None,
    order: Sequence[int] | None = None,
    run_json: Mapping[str, Any] | None = None,
) -> Path:
    sets = table(world)
    rng = np.random.default_rng(world.seed + 3)
    true = {}
    for entry in sets:
        if entry.role == "discovered":
            true[entry.key] = world.effects[entry.heads.name.split("/")[1]]
        else:
            true[entry.key] = float(rng.normal(0, world.control_sd)) if entry.role != "empty" else 0.0
    run = run_block(world, sets, op, [c for cs in arms.values() for c in cs])
    records = []
    for i in range(world.items):
        answers = {}
        for arm, conditions in arms.items():
            answers[arm] = _answer(world, sets, true, arm, conditions, i, rng, p_of)
        regions = {"grid": {n: {"boxes": [b], "image": 0} for n, b in _CELLS.items()}} if recipe == "grid_2x2" else {}
        records.append(_record(world, task, recipe, i, answers, regions).to_dict())
    for rank in range(world.ranks):
        first = next(iter(records[rank]["arms"]))
        records[rank]["arms"][first]["run"] = run
    if edit is not None:
        edit(records)
    sequence = range(len(records)) if order is None else order
    lines = [json.dumps({"doc_id": i, "resps": [], "record": records[i]}, ensure_ascii=False) for i in sequence]
    if run_json is not None:
        folder.mkdir(parents=True, exist_ok=True)
        value = {**run, "tasks": [task], "expected_items": {task: world.items}, **run_json}
        (folder / "run.json").write_text(json.dumps(value), encoding="utf-8")
    return _files(folder, task, lines)


def run_block(world: World, sets: SetTable, op: str, conditions: Sequence[Condition]) -> dict[str, Any]:
    """What the first answer of each rank carries."""
    geometry = {"heads": list(world.geometry.heads), "kv_heads": list(world.geometry.kv_heads or ())}
    unique = {c.name: c for c in conditions}
    return {
        "schema": 1,
        "settings": {
            "head_set": [f"tiny-digits/{n}" for n in world.effects],
            "controls": world.controls,
            "control_family": list(world.families),
            "control_seed": 0,
            "exclude_set": False,
            "phase": "both",
            **world.settings,
        },
        "model": {
            "id": MODEL.id,
            "revision": MODEL.revision,
            "dtype": "float32",
            "attention": "harness_heads",
            "host": "qwen3_vl",
            "family": "qwen3_vl",
            "quantisation": None,
            "geometry": geometry,
        },
        "sets": sets.to_list(),
        "sources": {e.key: e.heads.to_dict() for e in sets if e.role == "discovered"},
        "conditions": [c.to_dict() for c in unique.values()],
        "op": op,
        "versions": {"harness-heads": "0.1.0", "transformers": "5.24"},
        "plan": world.plan,
        "seed": 0,
        "proof": {"passed": True, "fired": list(range(8))},
        **world.run,
    }


_CELLS = {"correct": [0.0, 0.0, 64.0, 64.0], "distractor": [64.0, 0.0, 128.0, 64.0]}


def _record(world: World, task: str, recipe: str, i: int, arms: Any, regions: Any) -> ItemRecord:
    c = i % 4
    d = (c + 1 + i // 4 % 3) % 4
    extra: dict[str, Any] = {"correct": {"text": (c + 2) % 4}}
    if recipe == "grid_2x2":
        extra = {"cells": list("ABCD"), "distractor_option": d}
    # one content hash an item and task: two tasks may show the same picture and still are different items
    content = {"task": task, "seed": world.seed, "i": i}
    cluster = f"image-{i % world.clusters if world.clusters else i}"
    names = list(arms) or ["matched"]
    images = {arm: [item_id({"image": arm, "i": i})] for arm in names}
    planned = world.items if world.n_planned is None else world.n_planned
    return ItemRecord(
        item_id(content),
        task,
        recipe,
        1,
        0,
        i,
        planned,
        cluster,
        tuple(world.options),
        LETTERS,
        c,
        arms,
        {},
        regions,
        images,
        extra,
    )


def _answer(
    world: World,
    sets: SetTable,
    true: Mapping[str, float],
    arm: str,
    conditions: Sequence[Condition],
    i: int,
    rng: np.random.Generator,
    p_of: Callable[..., float],
) -> dict[str, Any]:
    c = i % 4
    own = (c + 2) % 4 if arm == "text" else c
    other = (c + 1 + i // 4 % 3) % 4
    noise = float(rng.normal(0, 0.02))
    logprobs: dict[str, Any] = {}
    dose: dict[str, Any] = {}
    base = _letters(p_of(world, arm, None, 0.0, noise), own, other, noise)
    keyed = [(entry, entry.key) for entry in sets]
    for condition in conditions:
        by_set, by_dose = {}, {}
        for entry, key in keyed:
            if entry.role == "empty":
                by_set[key] = base
                continue
            wobble = float(rng.normal(0, 0.05 if true[key] else 0.002))
            p = p_of(world, arm, condition, true[key] + wobble, noise)
            by_set[key] = _letters(p, own, other, noise)
            before = world.set_mass if entry.role == "discovered" else world.control_mass
            after = world.mass_after if condition.op == "mask" else 0.9
            by_dose[key] = {"before": before + abs(noise) / 10, "after": after}
        logprobs[condition.name] = by_set
        dose[condition.name] = by_dose
    if not conditions:
        logprobs["none"] = {sets.baseline.key: base}
    numerics = {"dtype": "float32", "kernel": "harness_heads", "baseline_gap": 0.0}
    result = ProbeResult(logprobs=logprobs, dose=dose, numerics=numerics)
    value: dict[str, Any] = json.loads(result.to_json())
    return value


def _letters(p: float, right: int, second: int, noise: float) -> dict[str, float]:
    """Log-probabilities of four letters with P(right) = p; .995 of the mass lies on the letters."""
    p = min(max(p, 1e-4), 0.99)
    rest = 0.995 - p
    shares = np.full(4, rest * 0.3)
    shares[second] = rest * 0.4
    shares[right] = p
    return {letter: math.log(float(v)) for letter, v in zip(LETTERS, shares, strict=True)}


def _ncs_p(world: World, arm: str, condition: Condition | None, effect: float, noise: float) -> float:
    base = {"matched": world.matched, "mismatched": world.mismatched, "blank": world.blank, "text": 0.98}[arm] + noise
    if condition is None or (arm != "matched" and condition.keys != "text"):
        return base
    if condition.keys == "text":
        return base - 0.5 if effect else base
    return base - (effect if condition.rows in (("all",), ("question",)) else effect / 40)


def _cers_p(world: World, arm: str, condition: Condition | None, effect: float, noise: float) -> float:
    if condition is None:
        return {"oracle": world.oracle, "blank": world.blank, "grid": 0.27}[arm] + noise
    return 0.3 + noise + (effect if condition.keys == "correct" else -effect / 2)


def _grid_p(world: World, arm: str, condition: Condition | None, effect: float, noise: float) -> float:
    base = {"oracle": world.oracle, "blank": world.blank}[arm] + noise
    return base - effect if condition is not None and condition.keys == "correct" else base


def _draw(heads: HeadSet, family: str, rng: np.random.Generator, world: World) -> HeadSet:
    chosen: list[Head] = []
    if family == "layer":
        for layer, need in enumerate(heads.per_layer):
            chosen += [Head(layer, int(h)) for h in rng.choice(world.geometry.heads[layer], size=need, replace=False)]
    else:
        every = world.geometry.all_heads()
        chosen = [every[i] for i in rng.choice(len(every), size=len(heads), replace=False)]
    if world.control_k is not None:
        chosen = chosen[: world.control_k]
    return HeadSet(f"{heads.name}/{family}", MODEL, world.geometry, tuple(sorted(chosen)))


def _per_layer(values: np.ndarray, geometry: Geometry) -> list[list[float]]:
    ends = np.cumsum(geometry.heads)[:-1]
    return [[float(v) for v in part] for part in np.split(values, ends)]


def _files(folder: Path, task: str, lines: Sequence[str]) -> Path:
    inner = folder / "tiny-digits"
    inner.mkdir(parents=True, exist_ok=True)
    stamp = "20261201_040000"
    (inner / f"{stamp}_samples_{task}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (inner / f"{stamp}_results.json").write_text("{}", encoding="utf-8")
    return folder


def samples_file(folder: Path) -> Path:
    """The one samples file of a run folder."""
    return next(folder.rglob("*_samples_*.jsonl"))
