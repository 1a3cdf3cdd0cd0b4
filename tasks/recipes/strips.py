"""``strip``: six panels side by side, a question that names one of them by its place.

Panels come from a labelled image set (``image`` and ``label``), or from rows that hold a whole strip with one
caption per panel (``panels`` and ``captions``, columns written with ``{i}``). Four of the six panels stand as options.
The set is blinded to the named panel and to another one (``op: mask``), or steered onto them (``op: steer``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import MIN_SIDE
from harness_heads.tasks.balance import dealt
from harness_heads.tasks.items import Item, Picture
from harness_heads.tasks.pictures import grid
from harness_heads.tasks.recipe import Option, Recipe, enough
from harness_heads.tasks.recipes.classes import ClassPool
from harness_heads.tasks.recipes.grid import check_asked, grid_arms
from harness_heads.tasks.sources import BadImage, Source
from harness_heads.tasks.spec import TaskSpec

PANELS = 6
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def build(spec: TaskSpec, source: Source) -> list[Item]:
    """Build the items."""
    rng = np.random.default_rng(spec.seed)
    letters, panels = dealt(spec.n, 4, rng), dealt(spec.n, PANELS, rng)
    strips = _rows_strips(spec, source, rng) if "panels" in spec.columns else _class_strips(spec, source, rng)
    width, height = RECIPE.option(spec, "width"), RECIPE.option(spec, "height")
    items = []
    for (pictures, names), letter, panel in zip(strips, letters, panels, strict=False):
        others = [i for i in rng.permutation(PANELS).tolist() if i != panel][:3]
        options = [names[i] for i in others]
        options.insert(letter, names[panel])
        picture = grid(
            pictures, (width, height), RECIPE.option(spec, "fit"), columns=PANELS, gap=RECIPE.option(spec, "gap")
        )
        arms = grid_arms(spec, picture, options, panel, others[0], cell_names=ORDINALS)
        extra = {
            "cell": {"correct": panel, "distractor": others[0]},
            "distractor_option": options.index(names[others[0]]),
        }
        items.append(Item(tuple(options), letter, arms, pictures[panel]["sha"], extra))
    enough(len(items), spec, "strips")
    return items


def _class_strips(
    spec: TaskSpec, source: Source, rng: np.random.Generator
) -> list[tuple[list[Picture], tuple[str, ...]]]:
    pool = ClassPool(source, spec, rng)
    strips = []
    for _ in range(spec.n):
        keys = pool.draw(PANELS, [], rng)
        strips.append(([pool.next_picture(key) for key in keys], tuple(pool.name(key) for key in keys)))
    return strips


def _rows_strips(
    spec: TaskSpec, source: Source, rng: np.random.Generator
) -> list[tuple[list[Picture], tuple[str, ...]]]:
    panels, captions = (
        [source.need(spec.columns[role].replace("{i}", str(i))) for i in range(1, PANELS + 1)]
        for role in ("panels", "captions")
    )
    strips = []
    for row in rng.permutation(len(source)).tolist():
        names = tuple(str(v).strip() if (v := source.value(row, column)) is not None else "" for column in captions)
        if all(names) and len(set(names)) == PANELS:
            try:
                strips.append(([source.picture(row, column) for column in panels], names))
            except BadImage:
                if not source.decode_first:
                    raise
        if len(strips) == spec.n:
            break
    return strips


def _check(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    columns = set(config.get("columns", {}))
    if columns not in ({"image", "label"}, {"panels", "captions"}):
        raise HarnessHeadsError("columns: a strip needs image and label, or panels and captions (written with {i})")
    for role in columns & {"panels", "captions"}:
        if "{i}" not in config["columns"][role]:
            raise HarnessHeadsError(
                f"columns.{role}: write {{i}} where the panel's number stands; six columns are read"
            )
    check_asked(options, config)


RECIPE = Recipe(
    "strip",
    1,
    build,
    {},
    {
        "image": "the image of one panel",
        "label": "its class",
        "panels": "column of a panel's image, with {i} for 1 to 6",
        "captions": "column of its caption, with {i}",
    },
    {
        "named_question": Option("", "question naming the panel by {cell}: first to sixth"),
        "width": Option(256, "width of a panel in pixels", low=MIN_SIDE),
        "height": Option(256, "height of a panel in pixels", low=MIN_SIDE),
        "fit": Option("contain", "how an image is fitted into its panel", ("cover", "contain")),
        "gap": Option(6, "white line between panels in pixels"),
    },
    fields={"question": (), "named_question": ("cell",)},
    check=_check,
)
