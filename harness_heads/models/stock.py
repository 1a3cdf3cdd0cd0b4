"""Requests without a probe: the host generates under the intervention, with its own key/value cache and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness_heads.conditions import Condition, Op
from harness_heads.engine import Engine
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import HeadSet, SetTable
from harness_heads.models.capture import Current, call_host, watched
from harness_heads.regions import Box, Region
from harness_heads.settings import Settings

BOX = "box"


def generate_stock(
    engine: Engine,
    sets: SetTable,
    settings: Settings,
    op: Op,
    host_generate: Callable[[list[Any]], list[Any]],
    requests: list[Any],
) -> list[Any]:
    """The host's own answers, under the run's one set and one condition.

    Controls need a run each here (``harness-heads run`` does that): a generated answer belongs to one set.

    Raises:
        HarnessHeadsError: if the run names several sets, row scopes or betas.
    """
    heads = the_one_set(sets)
    condition = stock_condition(op, settings)
    if not len(heads):
        return host_generate(requests)
    current = Current()
    model: Any = engine.model
    generate = model.generate

    def under(*args: Any, **kwargs: Any) -> Any:
        sizes = [image.size for image in current.images]
        regions = {}
        if condition.keys == BOX:
            if settings.box is None or not sizes:
                raise HarnessHeadsError("steering onto a box needs a prompt with an image")
            regions = {BOX: Region((scaled(settings.box, *sizes[0]),))}
        inputs = {**kwargs, **({"input_ids": args[0]} if args else {})}
        engine.prove_generation(generate, inputs, [heads], condition, regions=regions, image_sizes=sizes)
        with engine.generating(heads, condition, regions=regions, image_sizes=sizes):
            return generate(*args, **kwargs)

    if condition.keys == BOX:
        requests = watched(requests, current)
    answers: list[Any] = call_host(host_generate, model, requests, under)
    return answers


def the_one_set(sets: SetTable) -> HeadSet:
    """The single discovered set of a run, or the empty set where nothing else is named."""
    found = [entry.heads for entry in sets if entry.role in ("discovered", "subset")]
    if len(found) > 1:
        names = ", ".join(heads.name for heads in found)
        raise HarnessHeadsError(
            f"tasks without a probe generate text under one head set, this run names {names}; "
            "give one head_set and one top_k, or let `harness-heads run PLAN` run them all"
        )
    return found[0] if found else sets.baseline.heads


def stock_condition(op: Op, settings: Settings) -> Condition:
    """What a class does where no probe says it: cut or raise the image, or zero the heads."""
    if len(settings.rows) > 1 or len(settings.beta) > 1:
        raise HarnessHeadsError("tasks without a probe take one row scope and one beta; name one of each")
    rows = settings.rows[0] if settings.rows else ("all",)
    if op == "ablate":
        return Condition(op, "", rows, phase=settings.phase, ablation=settings.ablation)
    if op == "steer":
        beta = settings.beta[0] if settings.beta else "hard"
        keys = "image" if settings.box is None else BOX
        return Condition(op, keys, rows, beta, phase=settings.phase, numerics=settings.numerics)
    return Condition(op, "image", rows, phase=settings.phase, keep_self=settings.keep_self)


def scaled(box: tuple[float, float, float, float], width: int, height: int) -> Box:
    """A box in thousandths of the image as pixels."""
    x0, y0, x1, y1 = box
    return (x0 * width / 1000, y0 * height / 1000, x1 * width / 1000, y1 * height / 1000)
