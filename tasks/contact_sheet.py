"""Contact sheet: the first items of a task as one picture, every arm with its regions, so that a person can look."""

from __future__ import annotations

import textwrap
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from harness_heads.conditions import condition_from_dict
from harness_heads.tasks.items import Doc

THUMB = 260
PAD = 12
MIN_WIDTH = 560  # room for the headings of sheets with one arm
REGION_COLOURS = {"correct": "#0a8f3c", "gold": "#0a8f3c", "distractor": "#d9480f"}


def contact_sheet(task: Any, count: int = 6) -> Image.Image:
    """Draw the first ``count`` items of a :class:`HeadTask`, one row an item, one column an arm."""
    docs = list(task.dataset[task.config.test_split])[:count]
    title = (
        f"{task.spec.task}   {task.spec.recipe} v{task.recipe.version}   n={task.spec.n} seed={task.spec.seed}   "
        f"{task.spec.data.label}"
    )
    rows = [_row(task, doc) for doc in docs]
    width = max(MIN_WIDTH, *(row.width for row in rows))
    lines = textwrap.wrap(title, width // 8)
    top = 16 + 18 * len(lines)
    sheet = Image.new("RGB", (width, top + sum(row.height for row in rows)), "white")
    ImageDraw.Draw(sheet).multiline_text((PAD, 8), "\n".join(lines), font=ImageFont.load_default(15), fill="black")
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return sheet


def _row(task: Any, doc: Doc) -> Image.Image:
    cells = [_cell(task, doc, arm) for arm in doc["arms"]]
    height = max(cell.height for cell in cells) + 30
    width = max(MIN_WIDTH, PAD + sum(cell.width + PAD for cell in cells))
    row = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(row)
    right = task.doc_to_target(doc)
    head = f"{doc['index']}   {doc['item']}   right: {right}   cluster: {doc['cluster'][:24]}"
    draw.line((0, 0, row.width, 0), fill="#999999")
    draw.text((PAD, 6), head, font=ImageFont.load_default(13), fill="black")
    left = PAD
    for cell in cells:
        row.paste(cell, (left, 28))
        left += cell.width + PAD
    return row


def _cell(task: Any, doc: Doc, arm: str) -> Image.Image:
    probe = doc["arms"][arm]["probe"]
    images = [_thumb(_framed(image, probe, i)) for i, image in enumerate(task.doc_to_visual(doc, arm))]
    names = ", ".join(condition_from_dict(c).name for c in probe["conditions"]) or "no intervention"
    lines = [f"[{arm}] {probe['ask']}", *textwrap.wrap(names, 42)]
    for line in doc["arms"][arm]["text"].splitlines():
        lines += textwrap.wrap(line, 42) or [""]
    font = ImageFont.load_default(12)
    height = max(image.height for image in images) + 8 + 16 * len(lines)
    width = max(THUMB, sum(image.width for image in images))
    cell = Image.new("RGB", (width, height), "white")
    left = 0
    for image in images:
        cell.paste(image, (left, 0))
        left += image.width
    draw = ImageDraw.Draw(cell)
    for number, line in enumerate(lines):
        draw.text((0, max(i.height for i in images) + 4 + 16 * number), line, font=font, fill="#222222")
    return cell


def _framed(image: Image.Image, probe: dict[str, Any], number: int) -> Image.Image:
    """The image with its regions outlined; the model never sees these frames."""
    image = image.copy()
    draw = ImageDraw.Draw(image)
    for name, region in probe["regions"].items():
        if region["image"] == number:
            for x0, y0, x1, y1 in region["boxes"]:
                box = (x0, y0, max(x0 + 1, x1 - 1), max(y0 + 1, y1 - 1))
                draw.rectangle(box, outline=REGION_COLOURS.get(name, "#7048e8"), width=max(2, image.width // 120))
    return image


def _thumb(image: Image.Image) -> Image.Image:
    scale = min(THUMB / image.width, THUMB / image.height)
    if image.width > THUMB * 1.5 or image.height > THUMB or scale > 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        return image.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)
    return image
