"""Boxes in thousandths of a picture, as the embedded model writes them."""

import re

Box = tuple[int, int, int, int]
_BOX = re.compile(r'^\[\{"bbox_2d": \[(\d+), (\d+), (\d+), (\d+)\]\}\]$')


def parse_box(text: str) -> Box | None:
    """The box of an answer, or None when the answer is not exactly one box."""
    found = _BOX.match(text.strip())
    if found is None:
        return None
    x1, y1, x2, y2 = (int(number) for number in found.groups())
    return x1, y1, x2, y2


def iou(one: Box, other: Box) -> float:
    """Area of the intersection over area of the union; 0 when either box has no area."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    common = max(0, width) * max(0, height)
    areas = sum(max(0, x2 - x1) * max(0, y2 - y1) for x1, y1, x2, y2 in (one, other))
    return common / (areas - common) if common else 0.0
