"""Probe ``locate``: each family's own grounding prompt, greedy text for all head sets at once, box in image pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
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
    dose: dict[str, dict[str, dict[str, float]]] = {}
    baseline = next((entry for entry in entries if entry.role == "empty"), None)
    for condition in conditions or (None,):
        name = NONE if condition is None else condition.name
        text[name] = {}
        dose[name] = {}
        for part in _batches(entries, baseline, engine.chunk):
            answers, moved = _generate(engine, condition, part, inputs, probe, sizes)
            for entry, answer, shift in zip(part, answers, moved, strict=True):
                text[name].setdefault(entry.key, answer)
                if shift is not None:
                    dose[name][entry.key] = shift
    boxes: dict[str, dict[str, list[float] | None]] = {}
    for name, by_set in text.items():
        boxes[name] = {}
        for key, answer in by_set.items():
            if MASK in probe.regions:
                points = parse_points(answer, family.box_format, sizes[0], resized)
                boxes[name][key] = [*points[0], *points[0]] if points else None  # a point is a box without area
            else:
                box = parse_box(answer, family.box_format, sizes[0], resized)
                boxes[name][key] = None if box is None else list(box)
    return ProbeResult(
        text=text,
        boxes=boxes,
        dose={name: found for name, found in dose.items() if found},
        image_sha=image_sha,
        numerics={"dtype": str(engine.dtype).removeprefix("torch."), "kernel": engine.kernel},
    )


def _batches(entries: Sequence[SetEntry], baseline: SetEntry | None, size: int) -> Iterator[list[SetEntry]]:
    """Batches of at most ``size`` sets; the empty set leads each: doses are read against it."""
    if baseline is None or size < 2:
        for start in range(0, len(entries), size):
            yield list(entries[start : start + size])
        return
    others = [entry for entry in entries if entry is not baseline]
    for start in range(0, max(1, len(others)), size - 1):
        yield [baseline, *others[start : start + size - 1]]


def _generate(
    engine: Engine,
    condition: Condition | None,
    entries: Sequence[SetEntry],
    inputs: Mapping[str, torch.Tensor],
    probe: Probe,
    sizes: Sequence[tuple[int, int]],
) -> tuple[list[str], list[dict[str, float] | None]]:
    """Texts and doses, one of each per set."""
    model: Any = engine.model
    doses: list[dict[str, float] | None] = [None] * len(entries)
    repeated = {name: torch.cat([tensor] * len(entries)) for name, tensor in inputs.items()}
    settings = {"max_new_tokens": MAX_NEW_TOKENS, "do_sample": False, "use_cache": True}
    # the instance's own attribute is the stand-in that brought the inputs here
    generate = type(model).generate
    if condition is None:
        out = generate(model, **repeated, **settings)
    else:
        sets = [entry.heads for entry in entries]
        own = partial(generate, model)
        engine.prove_generation(own, inputs, sets, condition, regions=probe.regions, image_sizes=sizes)
        with engine.generating(sets, condition, regions=probe.regions, image_sizes=sizes) as watch:
            out = generate(model, **repeated, **settings)
        doses = watch.doses()
    new = out[:, inputs["input_ids"].shape[1] :]
    tokenizer = getattr(engine.processor, "tokenizer", engine.processor)
    # box tokens of some families are special tokens; the parsers strip what is not a box
    decoded: list[str] = [tokenizer.decode(row, skip_special_tokens=False) for row in _answered(model, new)]
    return decoded, doses


def _answered(model: Any, new: torch.Tensor) -> list[torch.Tensor]:
    """Every row up to its end of turn: what follows is padding, as long as the longest answer of the batch."""
    end = model.generation_config.eos_token_id
    ends = torch.tensor([] if end is None else [end] if isinstance(end, int) else end, device=new.device)
    lengths = [int(found[0]) if len(found := torch.isin(row, ends).nonzero()[:, 0]) else len(row) for row in new]
    return [row[:length] for row, length in zip(new, lengths, strict=True)]


def resized_size(model: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[int, int] | None:
    """Width and height of the image as the vision tower saw it, where the processor tells (``image_grid_thw``)."""
    grid = inputs.get("image_grid_thw")
    if grid is None:
        return None
    patch = int(model.config.vision_config.patch_size)
    return int(grid[0, 2]) * patch, int(grid[0, 1]) * patch
