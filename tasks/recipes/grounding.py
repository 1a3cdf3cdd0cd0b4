"""``grounding``: a referring expression, and the box it refers to (paper B).

The model is asked in its family's own words and read in its family's own frame (:mod:`harness_heads.boxes`), for
every head set at once. Items are split from the samples that heads were detected on: by sample, as the paper counts
(``split_rule: sample``), or by image, so that no picture is on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness_heads.errors import HarnessHeadsError
from harness_heads.plain import shown
from harness_heads.regions import Box, Region
from harness_heads.tasks.items import Arm, Item
from harness_heads.tasks.recipe import Option, Recipe, enough
from harness_heads.tasks.sources import BadImage, Source
from harness_heads.tasks.spec import TaskSpec

STOCK_PROMPT = "Locate {expression} in this image and output the bbox coordinates in JSON format."
STOCK_POINT_PROMPT = "Locate {expression} in this image and output the point coordinates in JSON format."
"""Text of the request for stock models; a wrapped model replaces it by its family's own."""


def build(spec: TaskSpec, source: Source) -> list[Item]:
    """Build the items."""
    for column in spec.columns.values():
        for part in column.split(","):
            source.need(part)
    detection, evaluation = split_rows(spec, source)
    rows = [*evaluation, *detection] if RECIPE.option(spec, "include_detection") else evaluation
    items: list[Item] = []
    for row in rows:
        for expression in _expressions(spec, source, row):
            if len(items) == spec.n:
                return items
            try:
                picture = source.picture(row, spec.columns["image"])
            except BadImage:
                if not source.decode_first:
                    raise
                continue
            regions = _regions(spec, source, row)
            condition = spec.condition("ablate", "image")
            asked = spec.question or (STOCK_POINT_PROMPT if "mask" in regions else STOCK_PROMPT)
            arm = Arm(
                asked.replace("{expression}", expression),
                (picture,),
                ask="locate",
                conditions=(condition,),
                regions=regions,
                expression=expression,
            )
            extra = {"gold": list(gold_box(spec, source, row)), "row": row, "expression": expression}
            items.append(Item((), None, {"locate": arm}, _cluster(spec, source, row), extra))
    enough(len(items), spec, f"samples after {len(detection)} were set apart for detection")
    return items


def split_rows(spec: TaskSpec, source: Source) -> tuple[list[int], list[int]]:
    """Rows for detecting heads and rows for evaluating them, from the seed alone.

    ``sample``: the first ``detection`` rows of a shuffle against all others. ``image``: rows that share an image with
    a detection row are in neither.
    """
    rng = np.random.default_rng(spec.seed)
    order = rng.permutation(len(source)).tolist()
    size = RECIPE.option(spec, "detection")
    detection, rest = order[:size], order[size:]
    if RECIPE.option(spec, "split_rule") == "image":
        seen = {_cluster(spec, source, row) for row in detection}
        rest = [row for row in rest if _cluster(spec, source, row) not in seen]
    return detection, rest


def gold_box(spec: TaskSpec, source: Source, row: int) -> Box:
    """The gold box as x0, y0, x1, y1 in pixels.

    Raises:
        HarnessHeadsError: naming the row, if the box has no area or there is none.
    """
    column = spec.columns["bbox"]
    where = f"{source.label}: row {row}, column {column!r}"
    if RECIPE.option(spec, "box") == "mask":
        return _mask_box(_mask(source, row, column, where))
    parts = column.split(",")
    cells = [source.value(row, part) for part in parts] if len(parts) == 4 else source.value(row, column)
    try:
        a, b, c, d = (float(v) for v in cells)
    except (TypeError, ValueError) as error:
        raise HarnessHeadsError(f"{where}: {cells!r} is no box of four numbers") from error
    box = (a, b, a + c, b + d) if RECIPE.option(spec, "box") == "xywh" else (a, b, c, d)
    Region((box,))  # refuses boxes without area
    return box


def _regions(spec: TaskSpec, source: Source, row: int) -> dict[str, Region]:
    """What the answer is held against: the gold box, or the mask itself."""
    if RECIPE.option(spec, "match") == "points":
        column = spec.columns["bbox"]
        return {"mask": Region(mask_runs(_mask(source, row, column, f"{source.label}: row {row}, column {column!r}")))}
    return {"gold": Region((gold_box(spec, source, row),))}


def _mask(source: Source, row: int, column: str, where: str) -> NDArray[np.bool_]:
    """A mask's non-zero pixels, shape [height, width]; masks may have three channels and grey edges."""
    mask: NDArray[np.bool_] = np.asarray(source.image(row, column)).max(axis=2) > 0
    if not mask.any():
        raise HarnessHeadsError(f"{where}: the mask is empty")
    return mask


def _mask_box(mask: NDArray[np.bool_]) -> Box:
    """Smallest box around a mask."""
    ys, xs = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return float(xs[0]), float(ys[0]), float(xs[-1] + 1), float(ys[-1] + 1)


def mask_runs(mask: NDArray[np.bool_]) -> tuple[Box, ...]:
    """A mask, shape [height, width], as boxes that cover it exactly: the runs of its rows, equal rows together."""
    boxes: list[Box] = []
    start = 0
    for end in range(1, len(mask) + 1):
        if end < len(mask) and np.array_equal(mask[end], mask[start]):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([0], mask[start].astype(np.int8), [0]))))
        boxes += [(float(a), float(start), float(b), float(end)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        start = end
    return tuple(boxes)


def _expressions(spec: TaskSpec, source: Source, row: int) -> list[str]:
    value = source.value(row, spec.columns["expression"])
    found = [v for v in (value if isinstance(value, (list, tuple)) else [value]) if v is not None]
    odd = next((v for v in found if not isinstance(v, str)), None)
    if odd is not None:
        column = spec.columns["expression"]
        raise HarnessHeadsError(
            f"{source.label}: row {row}, column {column!r}: {shown(odd)} is no expression; write a text"
        )
    every = [v.strip() for v in found]
    phrase = RECIPE.option(spec, "phrase")
    every = [phrase.replace("{expression}", v) for v in every if v]
    return every if RECIPE.option(spec, "expressions") == "all" else every[:1]


def _cluster(spec: TaskSpec, source: Source, row: int) -> str:
    """The image a row shows: by the cluster column (COCO names carry a running index after the image's number)."""
    if "cluster" not in spec.columns:
        return source.sha(row, spec.columns["image"])
    return str(source.value(row, spec.columns["cluster"])).rsplit("_", 1)[0]


def _check(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    if config.get("probe", {}).get("op", "ablate") == "steer":
        raise HarnessHeadsError("probe.op: grounding is ablated (paper B) or masked")
    if not options.get("phrase", "{expression}"):
        raise HarnessHeadsError("options.phrase is empty; write {expression} in it, or leave it out")
    if options.get("match") == "points" and options.get("box") != "mask":
        raise HarnessHeadsError("options.match: points are held against a mask; set box: mask")


RECIPE = Recipe(
    "grounding",
    1,
    build,
    {"image": "the image", "expression": "the expression, or a list of them", "bbox": "box, mask, or four columns"},
    {"cluster": "name of the image, without what follows its last underscore"},
    {
        "box": Option("xywh", "what the bbox column holds, in pixels of the image", ("xywh", "xyxy", "mask")),
        "match": Option("box", "IoU of at least .5 with the box, or a point in the mask", ("box", "points")),
        "phrase": Option("{expression}", "what the model is asked to locate, made from the column's {expression}"),
        "expressions": Option("first", "one expression per object, or all", ("first", "all")),
        "detection": Option(200, "samples set apart for detecting heads"),
        "split_rule": Option("image", "what may not be on both sides", ("sample", "image")),
        "include_detection": Option(False, "evaluate on the detection samples too"),
    },
    fields={"question": ("expression",), "phrase": ("expression",)},
    max_new_tokens=128,
    check=_check,
)
