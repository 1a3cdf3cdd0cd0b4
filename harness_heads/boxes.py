"""Text <-> boxes and points: one parser per family's text form, one fixed coordinate frame per family.

A frame is a property of the model and never guessed from the size of the numbers or from what fits the gold box best:
absolute pixels of a 640-pixel image look like thousandths, and trying several frames flatters who answers at random.
All boxes and points that leave this module are in pixels of the image as shown to the model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.regions import Box

Size = tuple[int, int]
"""Width and height in pixels."""
Point = tuple[float, float]
Frame = Literal["per_mille", "per_999", "resized", "unit", "unit_square", "bins_1024"]

_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)"
_THINK: Final = re.compile(r"^.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_QUAD: Final = re.compile(rf"[\[(<{{]\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*[\])>}}]")
_CORNERS: Final = re.compile(rf"\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)\s*,\s*\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)")
_KEYED: Final = re.compile(
    rf"[\"'](?:bbox_2d|bbox|box_2d|box)[\"']\s*:\s*\[\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\]"
)
_LOC: Final = re.compile(r"<loc(\d{4})><loc(\d{4})><loc(\d{4})><loc(\d{4})>")
_BARE: Final = re.compile(rf"^\W*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\W*$")
_PAIR: Final = re.compile(rf"[\[(]\s*({_NUMBER})\s*,\s*({_NUMBER})\s*[\])]")

Four = tuple[float, float, float, float]


@dataclass(frozen=True)
class BoxFormat:
    """How one family writes boxes.

    Attributes:
        name: what families call it.
        frame: what its numbers are: thousandths (``per_mille``) or 999ths of the image as shown, pixels of the image
            as the processor resized it (``resized``), fractions of it (``unit``) or of the square it is padded to
            (``unit_square``), or 1,024 bins (``bins_1024``).
        patterns: text forms, tried in order; the first match in the text counts.
        y_first: whether the order is y0, x0, y1, x1.
        write: template of the text form with x0, y0, x1, y1 and expression.
        decimals: digits after the point that the family writes.
        source: where the form and the frame are documented.
        point_prompt: how the family is asked for a point; empty: it is asked for a box, whose centre counts.
    """

    name: str
    frame: Frame
    patterns: tuple[re.Pattern[str], ...]
    write: str
    y_first: bool = False
    decimals: int = 0
    source: str = ""
    point_prompt: str = ""


_JSON: Final = '```json\n[\n\t{{"bbox_2d": [{x0}, {y0}, {x1}, {y1}], "label": "{expression}"}}\n]\n```'
_QWEN_POINT: Final = "Locate {expression} in this image and output the point coordinates in JSON format."
"""The RefSpatial-Bench authors' prompt for the Qwen family."""
_ANY: Final = (_KEYED, _QUAD, _CORNERS, _BARE)

FORMATS: Final[Mapping[str, BoxFormat]] = {
    f.name: f
    for f in (
        BoxFormat(
            "qwen3_vl",
            "per_mille",
            _ANY,
            _JSON,
            source="QwenLM/Qwen3-VL README: relative coordinates 0-1000",
            point_prompt=_QWEN_POINT,
        ),
        BoxFormat(
            "qwen2_5_vl",
            "resized",
            _ANY,
            _JSON,
            source="QwenLM/Qwen3-VL issue 866, process_bbox.ipynb",
            point_prompt=_QWEN_POINT,
        ),
        BoxFormat(
            "qwen2_vl",
            "per_mille",
            (_CORNERS, *_ANY),
            "<|object_ref_start|>{expression}<|object_ref_end|><|box_start|>({x0},{y0}),({x1},{y1})<|box_end|>",
            source="QwenLM/Qwen3-VL issue 866 (frame)",
        ),
        BoxFormat(
            "internvl",
            "per_mille",
            (_QUAD, _BARE),
            "<ref>{expression}</ref><box>[[{x0}, {y0}, {x1}, {y1}]]</box>",
            source="OpenGVLab/InternVL evaluate_grounding.py",
        ),
        BoxFormat(
            "glm4v",
            "per_mille",
            (_QUAD, _BARE),
            "<|begin_of_box|>[[{x0},{y0},{x1},{y1}]]<|end_of_box|>",
            source="zai-org/GLM-V README",
        ),
        BoxFormat(
            "paligemma",
            "bins_1024",
            (_LOC,),
            "<loc{y0}><loc{x0}><loc{y1}><loc{x1}> {expression}",
            y_first=True,
            source="google-research/big_vision PaliGemma README",
        ),
        BoxFormat(
            "deepseek_vl2",
            "per_999",
            (_QUAD, _BARE),
            "<|ref|>{expression}<|/ref|><|det|>[[{x0}, {y0}, {x1}, {y1}]]<|/det|>",
            source="deepseek-ai/DeepSeek-VL2 README",
        ),
        BoxFormat("llava", "unit", (_QUAD, _BARE), "[{x0}, {y0}, {x1}, {y1}]", decimals=2, source="LLaVA docs"),
        BoxFormat(
            "llava_square",
            "unit_square",
            (_QUAD, _BARE),
            "[{x0}, {y0}, {x1}, {y1}]",
            decimals=2,
            source="haotian-liu/LLaVA issues 606 and 822: LLaVA-1.5 was trained on the padded square (disputed)",
        ),
    )
}


def box_format(name: str) -> BoxFormat:
    """The format of that name; an error lists the known ones."""
    if name not in FORMATS:
        raise HarnessHeadsError(f"box format {name!r} is unknown{did_you_mean(name, FORMATS)} ({', '.join(FORMATS)})")
    return FORMATS[name]


def parse_box(text: str | None, name: str, shown: Size, resized: Size | None = None) -> Box | None:
    """The first box of an answer in pixels of the image as shown, ``None`` where there is none.

    Corners are put in order and clipped to the image; a box without area or wholly outside is no box.

    Args:
        text: the model's words.
        name: the family's format.
        shown: size of the image as shown.
        resized: size after the processor's resizing; only the frame ``resized`` needs it.

    Raises:
        HarnessHeadsError: if the frame needs ``resized`` and it is not given.
    """
    form = box_format(name)
    to_x, to_y = _frame(form, shown, resized)
    numbers = _first_four(text, form)
    if numbers is None:
        return None
    a, b, c, d = numbers
    if form.y_first:
        a, b, c, d = b, a, d, c
    corners = (to_x(a), to_y(b), to_x(c), to_y(d))
    if not all(math.isfinite(v) for v in corners):
        return None
    x0, x1 = (min(max(v, 0.0), float(shown[0])) for v in sorted((corners[0], corners[2])))
    y0, y1 = (min(max(v, 0.0), float(shown[1])) for v in sorted((corners[1], corners[3])))
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def write_box(box: Box, name: str, shown: Size, resized: Size | None = None, expression: str = "") -> str:
    """A box as the family writes it; :func:`parse_box` reads it back to within the frame's rounding."""
    form = box_format(name)
    from_x, from_y = _inverse(form, shown, resized)
    values = {"x0": from_x(box[0]), "y0": from_y(box[1]), "x1": from_x(box[2]), "y1": from_y(box[3])}
    width = ":04d" if form.frame == "bins_1024" else ""
    words = {
        k: f"{v:.{form.decimals}f}" if form.decimals else f"{{{width}}}".format(round(v)) for k, v in values.items()
    }
    return form.write.format(**words, expression=expression)


def parse_points(text: str | None, name: str, shown: Size, resized: Size | None = None) -> list[Point]:
    """All points of an answer in pixels of the image as shown; a box counts as its centre.

    Points outside the image are kept: a scorer counts them as misses.
    """
    form = box_format(name)
    to_x, to_y = _frame(form, shown, resized)
    answer = _without_thought(text)
    quads = [q for pattern in (_KEYED, _QUAD, _LOC) for q in pattern.findall(answer)]
    if quads:
        fours = [tuple(float(v) for v in q) for q in quads]
        pairs = [((a + c) / 2, (b + d) / 2) for a, b, c, d in fours]
    else:
        pairs = [(float(x), float(y)) for x, y in _PAIR.findall(answer)]
    return [(to_x(y), to_y(x)) if form.y_first else (to_x(x), to_y(y)) for x, y in pairs]


def inside(point: Point, boxes: Sequence[Sequence[float]]) -> bool:
    """Whether a point lies in one of the boxes (left and upper edges belong to a box, right and lower ones do not)."""
    x, y = point
    return any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in boxes)


def share_inside(points: Sequence[Point], boxes: Sequence[Sequence[float]]) -> float:
    """Share of points inside a union of boxes; 0 without any point."""
    return sum(inside(point, boxes) for point in points) / len(points) if points else 0.0


def _first_four(text: str | None, form: BoxFormat) -> Four | None:
    answer = _without_thought(text)
    found = [m for m in (pattern.search(answer) for pattern in form.patterns) if m]
    if not found:
        return None
    a, b, c, d = (float(v) for v in min(found, key=lambda m: m.start()).groups())
    return a, b, c, d


def _without_thought(text: str | None) -> str:
    """The answer after a think block; a think block that never ends holds no answer."""
    if not text:
        return ""
    rest = _THINK.sub("", text)
    return "" if re.match(r"\s*<think", rest, re.IGNORECASE) else rest


Map = Callable[[float], float]


def _frame(form: BoxFormat, shown: Size, resized: Size | None) -> tuple[Map, Map]:
    """Maps of the family's x and y to pixels of the image as shown."""
    scale_x, scale_y, shift_x, shift_y = _scales(form, shown, resized)
    return (lambda v: v * scale_x - shift_x), (lambda v: v * scale_y - shift_y)


def _inverse(form: BoxFormat, shown: Size, resized: Size | None) -> tuple[Map, Map]:
    scale_x, scale_y, shift_x, shift_y = _scales(form, shown, resized)
    top = 1023.0 if form.frame == "bins_1024" else math.inf
    return (lambda v: min((v + shift_x) / scale_x, top)), (lambda v: min((v + shift_y) / scale_y, top))


def _scales(form: BoxFormat, shown: Size, resized: Size | None) -> tuple[float, float, float, float]:
    width, height = shown
    if form.frame == "resized":
        if resized is None:
            raise HarnessHeadsError(f"box format {form.name}: its pixels are those of the resized image; give its size")
        return width / resized[0], height / resized[1], 0.0, 0.0
    if form.frame == "unit_square":
        side = float(max(width, height))
        return side, side, (side - width) / 2, (side - height) / 2
    unit = {"per_mille": 1000.0, "per_999": 999.0, "unit": 1.0, "bins_1024": 1024.0}[form.frame]
    return width / unit, height / unit, 0.0, 0.0
