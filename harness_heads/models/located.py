"""Probe ``locate``: each family's own grounding prompt, greedy text for all head sets at once, box in image pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness_heads.boxes import box_format, parse_box, parse_points
from harness_heads.conditions import Condition
from harness_heads.engine import NONE, Engine
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family
from harness_heads.heads import SetEntry
from harness_heads.probes import Probe, ProbeResult

MAX_NEW_TOKENS = 128
MASK = "mask"
"""Region of a probe that is answered by a point inside it, not by a box."""


def grounding_text(family: Family, probe: Probe) -> str:
    """The family's own question for a box, or for a point where the probe's region is a mask."""
    if not family.grounding_prompt or probe.expression is None:
        raise HarnessHeadsError(
            f"task {probe.task!r} asks for a box, and family {family.name} has no documented grounding prompt"
        )
    point = box_format(family.box_format).point_prompt if MASK in probe.regions else ""
    return (point or family.grounding_prompt).format(expression=probe.expression)


def answer_locate(
    engine: Engine,
    family: Family,
    probe: Probe,
    conditions: Sequence[Condition],
    entries: Sequence[SetEntry],
    inputs: Mapping[str, torch.Tensor],
    sizes: Sequence[tuple[int, int]],
    image_sha: tuple[str, ...],
) -> ProbeResult:
    """Greedy answers and boxes under every condition and set; row b of a batch is set b.

    Raises:
        HarnessHeadsError: if the prompt does not hold exactly one image.
    """
    if len(sizes) != 1:
        raise HarnessHeadsError(f"locate needs one image, the prompt holds {len(sizes)}")
    resized = resized_size(engine.model, inputs)
    text: dict[str, dict[str, str]] = {}
    for condition in conditions or (None,):
        name = NONE if condition is None else condition.name
        text[name] = {}
        for start in range(0, len(entries), engine.chunk):
            part = entries[start : start + engine.chunk]
            for entry, answer in zip(part, _generate(engine, condition, part, inputs, probe, sizes), strict=True):
                text[name][entry.key] = answer
    boxes: dict[str, dict[str, list[float] | None]] = {}
    for name, answers in text.items():
        boxes[name] = {}
        for key, answer in answers.items():
            if MASK in probe.regions:
                points = parse_points(answer, family.box_format, sizes[0], resized)
                boxes[name][key] = [*points[0], *points[0]] if points else None  # a point is a box without area
            else:
                box = parse_box(answer, family.box_format, sizes[0], resized)
                boxes[name][key] = None if box is None else list(box)
    return ProbeResult(
        text=text,
        boxes=boxes,
        image_sha=image_sha,
        numerics={"dtype": str(engine.dtype).removeprefix("torch."), "kernel": engine.kernel},
    )


def _generate(
    engine: Engine,
    condition: Condition | None,
    entries: Sequence[SetEntry],
    inputs: Mapping[str, torch.Tensor],
    probe: Probe,
    sizes: Sequence[tuple[int, int]],
) -> list[str]:
    model: Any = engine.model
    repeated = {name: torch.cat([tensor] * len(entries)) for name, tensor in inputs.items()}
    settings = {"max_new_tokens": MAX_NEW_TOKENS, "do_sample": False, "use_cache": True}
    # the instance's own attribute is the stand-in that brought the inputs here
    generate = type(model).generate
    if condition is None:
        out = generate(model, **repeated, **settings)
    else:
        sets = [entry.heads for entry in entries]
        with engine.generating(sets, condition, regions=probe.regions, image_sizes=sizes):
            out = generate(model, **repeated, **settings)
    new = out[:, inputs["input_ids"].shape[1] :]
    tokenizer = getattr(engine.processor, "tokenizer", engine.processor)
    # box tokens of some families are special tokens; the parsers strip what is not a box
    decoded: list[str] = tokenizer.batch_decode(new, skip_special_tokens=False)
    return decoded


def resized_size(model: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[int, int] | None:
    """Width and height of the image as the vision tower saw it, where the processor tells (``image_grid_thw``)."""
    grid = inputs.get("image_grid_thw")
    if grid is None:
        return None
    patch = int(model.config.vision_config.patch_size)
    return int(grid[0, 2]) * patch, int(grid[0, 1]) * patch
