"""One item drawn: its picture with the cells, its options, and P(c) for the set and for one control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness_heads.protocol.analysis import Analysis, Test
from harness_heads.protocol.effects import control_keys
from harness_heads.protocol.evidence import Block, TaskEvidence
from harness_heads.protocol.formats import number
from harness_heads.protocol.scores import LABELS, chosen, probabilities
from harness_heads.protocol.svg import Canvas, Figure, Scale, shorten

WIDTH = 460.0
SIDE = 132.0


def item_figure(a: Analysis, test: Test, item: int, id: str, control: int = 0) -> Figure:
    """Draw item number ``item`` (row of the evidence) under a test's condition.

    Args:
        control: which control draw stands beside the set.
    """
    task = a.task_of(test).evidence
    arms = _arms(task, test)
    bars = _bars(a, test, task, item, control)
    canvas = Canvas(WIDTH, 22 + SIDE + 14 + 21 * len(bars) + 22)
    for place, arm in enumerate(arms[:2]):
        _picture(canvas, a.evidence.pictures, task, item, arm, 6 + place * (SIDE + 8))
    right = int(task.right(arms[0])[item])
    wrong = int(task.distractor[item])
    left = 6 + len(arms[:2]) * (SIDE + 8) + 4
    for option, text in enumerate(task.options[item]):
        mark = "correct" if option == right else "distractor" if option == wrong else "label"
        suffix = " ✓" if option == right else ""
        room = int((WIDTH - left) / 7.2) - 3
        canvas.text(left, 36 + option * 20, shorten(f"{task.letters[option]}. {text}", room) + suffix, mark)
    scale = Scale(0, 1, 218, WIDTH - 42)
    top = 22 + SIDE + 14
    for row, (name, p, kind) in enumerate(bars):
        y = top + row * 21
        canvas.text(212, y + 12, shorten(name, 34), "label", "end")
        canvas.rect(scale(0), y + 2, scale(1) - scale(0), 13, "cellback")
        canvas.rect(scale(0), y + 2, scale(p) - scale(0), 13, kind, f"{name}: {p:.4f}")
        canvas.text(scale(1) + 4, y + 13, number(p), "label")
    canvas.text(WIDTH - 42, top + len(bars) * 21 + 12, "P(c)", "tick", "end")
    words = "; ".join(f"{name}: P(c) = {number(p)}" for name, p, _ in bars)
    answer = task.options[item][right] if 0 <= right < len(task.options[item]) else "?"
    alt = f"Item {task.items[item]}, right answer {' '.join(answer.split())}. {words}"
    title = f"Item {task.items[item]}: {LABELS[test.effect.score]} of {shorten(test.effect.name, 40)}"
    return Figure(id, title, canvas.svg(alt), alt)


def _arms(task: TaskEvidence, test: Test) -> tuple[str, ...]:
    if test.effect.score == "ncs":
        return ("matched", "mismatched")
    arms = [
        arm for arm, condition in sorted(task.blocks) if condition.split(":")[0] == test.effect.condition.split(":")[0]
    ]
    return (arms[0],) if arms else task.arms[:1]


def _bars(a: Analysis, test: Test, task: TaskEvidence, item: int, control: int) -> list[tuple[str, float, str]]:
    """Name, P(c) and style of every bar."""
    run = a.evidence.runs[test.run]
    draws = control_keys(run, test.effect.key, test.effect.family)
    sets = [("set", test.effect.key, "bar")]
    if draws:
        sets.append((f"control {control}", draws[control % len(draws)], "barcontrol"))
    out: list[tuple[str, float, str]] = []
    empty = run.sets.baseline.key
    for arm, condition, words in _cells(task, test):
        block = task.blocks[(arm, condition)]
        right = task.right(arm)
        if not condition.startswith("steer") and empty in block.sets:
            out.append((f"{words}, untouched", _p(block, empty, right, item), "barbase"))
        out += [(f"{words}, {name}", _p(block, key, right, item), kind) for name, key, kind in sets]
    return out


def _cells(task: TaskEvidence, test: Test) -> list[tuple[str, str, str]]:
    """Arms and conditions behind a score: (arm, condition, words)."""
    condition = test.effect.condition
    if test.effect.score in ("stock_drop", "stock_loss"):
        return [(arm, c, "score") for arm, c in sorted(task.blocks)]
    if test.effect.score == "ncs":
        return [(arm, condition, arm) for arm in ("matched", "mismatched")]
    op, *rest = condition.split(":")
    rest = rest[1:] if rest[:1] == ["cell"] else rest
    verbs = {"steer": "to", "mask": "hidden:"}
    out = []
    for keys in ("correct", "distractor"):
        name = ":".join([op, keys, *rest])
        out += [(arm, c, f"{verbs.get(op, op)} {keys}") for arm, c in sorted(task.blocks) if c == name]
    return out


def _p(block: Block, key: str, right: np.ndarray, item: int) -> float:
    if not block.logprobs.shape[2]:
        return float("nan")
    values = probabilities(block.logprobs[item : item + 1, block.columns([key])], "raw")
    return float(chosen(values, right[item : item + 1])[0, 0])


def _picture(canvas: Canvas, pictures: Mapping[str, str], task: TaskEvidence, item: int, arm: str, left: float) -> None:
    """The image of an arm where it is at hand, else an empty frame; cells drawn on top."""
    detail = task.details[item]
    canvas.text(left, 14, arm, "tick")
    shas = (detail.get("images") or {}).get(arm) or []
    uri = pictures.get(shas[0]) if shas else None
    canvas.rect(left, 20, SIDE, SIDE, "cellback")
    if uri:
        canvas.image(left, 20, SIDE, SIDE, uri)
    else:
        canvas.text(left + SIDE / 2, 20 + SIDE - 10, "picture not stored", "tick", "middle")
    regions: Mapping[str, Any] = (detail.get("regions") or {}).get(arm) or {}
    extent = max((max(b[2:]) for r in regions.values() for b in r["boxes"]), default=0.0)
    # both cells of a 2x2 grid may lie in one half of it: the cells' own size tells the grid's
    cell = max((b[2] - b[0] for r in regions.values() for b in r["boxes"]), default=0.0)
    scale = SIDE / max(extent, 2 * cell, 1.0)
    for name, region in sorted(regions.items()):
        for x0, y0, x1, y1 in region["boxes"]:
            kind = "framegood" if name == "correct" else "frameother"
            canvas.rect(
                left + x0 * scale + 2, 20 + y0 * scale + 2, (x1 - x0) * scale - 4, (y1 - y0) * scale - 4, kind, name
            )
