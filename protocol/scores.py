"""Item scores as arrays: the formulas of :mod:`harness_heads.scoring` for all items and sets of a task at once.

A score table has one row an item (sorted by id) and one column a head set. Which scores a task has follows from its
arms and conditions, not from its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness_heads.boxes import inside
from harness_heads.protocol.arrays import Floats, Ints
from harness_heads.protocol.evidence import NO_CONDITION, Block, TaskEvidence
from harness_heads.protocol.runs import RunInfo
from harness_heads.scoring import READINGS, Reading

SUFFIXES = ("", "_renorm")
"""Ends of score names, by reading of P."""
LABELS: Mapping[str, str] = {
    "ncs": "NCS",
    "ncs_renorm": "NCS, P renormalised over the options",
    "drop_matched": "matched drop",
    "drop_mismatched": "mismatched drop",
    "drop_matched_renorm": "matched drop, renormalised",
    "drop_mismatched_renorm": "mismatched drop, renormalised",
    "drop_text": "text-arm drop, image masked",
    "drop_text_text": "text-arm drop, text masked",
    "ncs_v2": "NCS-v2",
    "ncs_logodds": "NCS in log-odds",
    "cers": "CERS",
    "cers_renorm": "CERS, P renormalised over the options",
    "cers_symmetric": "symmetric CERS",
    "cers_symmetric_renorm": "symmetric CERS, renormalised",
    "p_to_correct": "P(c) steered to the answer",
    "p_to_distractor": "P(c) steered to the distractor",
    "ncs_grid": "NCS on the grid",
    "ncs_grid_renorm": "NCS on the grid, renormalised",
    "grounding_drop": "grounding accuracy drop",
    "mislocated": "valid box, IoU below .5",
    "unparsable": "answer that is no box",
    "stock_drop": "task score, untouched minus intervened",
    "stock_loss": "1 - task score",
}


@dataclass(frozen=True)
class ScoreTable:
    """One score under one condition.

    Attributes:
        score: key of :data:`LABELS`.
        condition: what was done (``mask:image``, ``steer:beta=hard``); cells of a contrast share one name.
        sets: keys of the columns, the empty set left out.
        values: item scores, shape [N, sets].
        primary: whether claims are judged by it.
    """

    score: str
    condition: str
    sets: tuple[str, ...]
    values: Floats
    primary: bool = False

    def of(self, keys: Sequence[str]) -> Floats:
        """Columns of the named sets, shape [N, len(keys)]."""
        place = {key: i for i, key in enumerate(self.sets)}
        return self.values[:, [place[key] for key in keys]]


def probabilities(logprobs: Floats, reading: Reading) -> Floats:
    """P of every option, shape as given; ``renorm`` divides by the options' total (NaN where that is 0)."""
    if reading == "raw":
        return np.asarray(np.exp(logprobs))
    with np.errstate(invalid="ignore"):
        shifted = np.exp(logprobs - logprobs.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def chosen(values: Floats, options: Ints) -> Floats:
    """Entry of each item's option, [N, sets, options] -> [N, sets]."""
    return np.asarray(np.take_along_axis(values, options[:, None, None], axis=2)[..., 0])


def log_odds(logprobs: Floats, options: Ints) -> Floats:
    """log P(c) minus the log of the other options' total, [N, sets, options] -> [N, sets]; +-inf at the ends."""
    right = chosen(logprobs, options)
    rest = np.where(np.arange(logprobs.shape[2]) == options[:, None, None], -np.inf, logprobs)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(right - np.logaddexp.reduce(rest, axis=2))


def score_tables(task: TaskEvidence, run: RunInfo) -> tuple[ScoreTable, ...]:
    """Every score that the task's arms and conditions determine."""
    empty = run.sets.baseline.key
    if run.value.get("fan"):
        return _fan(task, empty)
    out: list[ScoreTable] = []
    for condition in _shared(task, "matched", "mismatched"):
        out += _necessity(task, condition, empty)
    for arm in task.arms:
        for name, first, second in _pairs(task, arm, "steer"):
            out += _steering(task, arm, name, first, second, empty)
        for name, first, second in _pairs(task, arm, "mask"):
            out += _grid(task, arm, name, first, second, empty)
        for condition in task.conditions(arm):
            block = task.blocks[(arm, condition)]
            if block.boxes is not None and condition != NO_CONDITION:
                out += _grounding(task, arm, condition, block, empty)
    return tuple(out)


def arm_probabilities(task: TaskEvidence, run: RunInfo) -> Mapping[str, Floats]:
    """Log-probabilities without intervention, ``arm -> [N, options]``; arms that locate are left out."""
    out = {}
    for arm in task.arms:
        for condition in task.conditions(arm):
            block = task.blocks[(arm, condition)]
            if block.logprobs.shape[2] and run.sets.baseline.key in block.sets:
                out[arm] = block.logprobs[:, block.sets.index(run.sets.baseline.key)]
                break
    return out


def _necessity(task: TaskEvidence, condition: str, empty: str) -> list[ScoreTable]:
    matched, mismatched = (task.blocks[(arm, condition)] for arm in ("matched", "mismatched"))
    keys = tuple(k for k in matched.sets if k != empty)
    values: dict[str, Floats] = {}
    for reading, suffix in ((_raw, ""), (_renormalised, "_renorm")):
        match, mism = (
            _drop(b, task.right(arm), keys, empty, reading)
            for b, arm in ((matched, "matched"), (mismatched, "mismatched"))
        )
        values |= {f"ncs{suffix}": match - mism, f"drop_matched{suffix}": match, f"drop_mismatched{suffix}": mism}
    odds = [
        _drop(b, task.right(arm), keys, empty, log_odds)
        for b, arm in ((matched, "matched"), (mismatched, "mismatched"))
    ]
    with np.errstate(invalid="ignore"):
        values["ncs_logodds"] = odds[0] - odds[1]
    text = task.blocks.get(("text", condition))
    if text is not None and set(keys) <= set(text.sets):
        values["drop_text"] = _drop(text, task.right("text"), keys, empty, _raw)
        values["ncs_v2"] = values["drop_matched"] - values["drop_text"]
    bite = task.blocks.get(("text", _with_keys(condition, "text")))
    if bite is not None and set(keys) <= set(bite.sets):
        values["drop_text_text"] = _drop(bite, task.right("text"), keys, empty, _raw)
    return [ScoreTable(name, condition, keys, v, name == "ncs") for name, v in values.items()]


def _steering(task: TaskEvidence, arm: str, name: str, to_c: Block, to_d: Block, empty: str) -> list[ScoreTable]:
    keys = tuple(k for k in to_c.sets if k != empty)
    c, d = task.right(arm), task.distractor
    values: dict[str, Floats] = {}
    for reading, suffix in zip(READINGS, SUFFIXES, strict=True):
        p_c, p_d = (probabilities(b.logprobs[:, b.columns(keys)], reading) for b in (to_c, to_d))
        forward = chosen(p_c, c) - chosen(p_d, c)
        values[f"cers{suffix}"] = forward
        if (d >= 0).all():
            values[f"cers_symmetric{suffix}"] = 0.5 * (forward + chosen(p_d, d) - chosen(p_c, d))
        if not suffix:
            values |= {"p_to_correct": chosen(p_c, c), "p_to_distractor": chosen(p_d, c)}
    return [ScoreTable(n, name, keys, v, n == "cers") for n, v in values.items()]


def _grid(task: TaskEvidence, arm: str, name: str, hide_c: Block, hide_d: Block, empty: str) -> list[ScoreTable]:
    keys = tuple(k for k in hide_c.sets if k != empty)
    c = task.right(arm)
    values = {}
    for reading, suffix in zip(READINGS, SUFFIXES, strict=True):
        p_c, p_d = (chosen(probabilities(b.logprobs[:, b.columns(keys)], reading), c) for b in (hide_c, hide_d))
        values[f"ncs_grid{suffix}"] = p_d - p_c
    return [ScoreTable(n, name, keys, v, n == "ncs_grid") for n, v in values.items()]


def _grounding(task: TaskEvidence, arm: str, condition: str, block: Block, empty: str) -> list[ScoreTable]:
    """Paper B: accuracy at IoU >= .5, and what the other answers are: a box elsewhere, or no box.

    Where the record's region is a mask, the answer is a point, and right if it lies in the mask.
    """
    if block.boxes is None:
        return []
    parsed = np.asarray(~np.isnan(block.boxes).any(axis=2))
    masks = [_regions(d, arm).get("mask") for d in task.details]
    if all(masks):
        points = block.boxes[..., :2]
        hit = np.array([[inside(p, m["boxes"]) for p in row] for row, m in zip(points, masks, strict=True) if m])
    else:
        gold = np.array([_gold(d, arm) for d in task.details], np.float64)
        if np.isnan(gold).any():
            return []
        hit = np.asarray(parsed & (_iou(block.boxes, gold[:, None, :]) >= 0.5))
    keys = tuple(k for k in block.sets if k != empty)
    columns, base = block.columns(keys), block.sets.index(empty)
    correct = np.asarray(hit, np.float64)
    values = {
        "grounding_drop": correct[:, [base]] - correct[:, columns],
        "mislocated": np.asarray(parsed & ~hit, np.float64)[:, columns],
        "unparsable": np.asarray(~parsed, np.float64)[:, columns],
    }
    return [ScoreTable(n, condition, keys, v, n == "grounding_drop") for n, v in values.items()]


def _fan(task: TaskEvidence, empty: str) -> tuple[ScoreTable, ...]:
    """A stock task answered in words under each set: what its score lost, against the host where that was run."""
    ((_, condition), block) = next(iter(task.blocks.items()))
    scores = np.exp(block.logprobs[:, :, 0])
    if empty not in block.sets:
        return (ScoreTable("stock_loss", condition, block.sets, 1.0 - scores, True),)
    keys = tuple(key for key in block.sets if key != empty)
    drop = scores[:, [block.sets.index(empty)]] - scores[:, block.columns(keys)]
    return (ScoreTable("stock_drop", condition, keys, drop, True),)


def _regions(detail: Mapping[str, object], arm: str) -> Mapping[str, Any]:
    regions = detail.get("regions")
    return (regions.get(arm) or {}) if isinstance(regions, Mapping) else {}


def _gold(detail: Mapping[str, object], arm: str) -> list[float]:
    regions = _regions(detail, arm)
    gold = regions.get("gold") or regions.get("target")
    if gold is not None:
        return [float(v) for v in gold["boxes"][0]]
    extra = detail.get("extra")
    box = extra.get("gold") if isinstance(extra, Mapping) else None
    return [math.nan] * 4 if box is None else [float(v) for v in box]


def _iou(a: Floats, b: Floats) -> Floats:
    """IoU of boxes on the last axis; 0 where they do not meet, NaN where one is NaN."""
    size = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = np.where((size <= 0).any(axis=-1), 0.0, size.prod(axis=-1))
    areas = (a[..., 2:] - a[..., :2]).prod(axis=-1) + (b[..., 2:] - b[..., :2]).prod(axis=-1)
    return np.asarray(shared / (areas - shared))


def _raw(logprobs: Floats, options: Ints) -> Floats:
    return chosen(probabilities(logprobs, "raw"), options)


def _renormalised(logprobs: Floats, options: Ints) -> Floats:
    return chosen(probabilities(logprobs, "renorm"), options)


def _drop(
    block: Block, options: Ints, keys: Sequence[str], empty: str, reading: Callable[[Floats, Ints], Floats]
) -> Floats:
    """Reading without the intervention minus reading under it, [N, sets]."""
    base = reading(block.logprobs[:, [block.sets.index(empty)]], options)
    with np.errstate(invalid="ignore"):
        return np.asarray(base - reading(block.logprobs[:, block.columns(keys)], options))


def _shared(task: TaskEvidence, first: str, second: str) -> list[str]:
    """Conditions of both arms that cut the image (or ablate)."""
    both = set(task.conditions(first)) & set(task.conditions(second))
    return [
        c
        for c in sorted(both, key=condition_order)
        if c.split(":")[0] == "ablate" or c.split(":")[:2] == ["mask", "image"]
    ]


def _pairs(task: TaskEvidence, arm: str, op: str) -> list[tuple[str, Block, Block]]:
    """Condition pairs that differ in their keys alone, onto (or off) the answer's cell and the distractor's."""
    out = []
    for condition in sorted(task.conditions(arm), key=condition_order):
        parts = condition.split(":")
        if parts[0] == op and parts[1:2] == ["correct"]:
            other = _with_keys(condition, "distractor")
            if (arm, other) in task.blocks:
                name = ":".join([op if op == "steer" else "mask:cell", *parts[2:]])
                out.append((name, task.blocks[(arm, condition)], task.blocks[(arm, other)]))
    return out


def condition_order(condition: str) -> tuple[object, ...]:
    """Sorting key of condition names: plain ones first, betas by size, the hard limit last."""
    out: list[object] = []
    for part in condition.split(":"):
        name, sign, value = part.partition("=")
        if name == "beta" and sign:
            out.append((name, math.inf if value == "hard" else float(value), ""))
        else:
            out.append((name, 0.0, value))
    return (len(out), *out)


def _with_keys(condition: str, keys: str) -> str:
    """The same condition on other keys."""
    parts = condition.split(":")
    return ":".join([parts[0], keys, *parts[2:]]) if len(parts) > 1 else condition
