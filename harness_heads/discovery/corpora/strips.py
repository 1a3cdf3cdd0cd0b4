"""Six-panel strips: how they are stitched and how they are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from harness_heads.discovery.samples import Ask, phrase_in
from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import Box, Region

PANELS = 6
HEIGHT = 256
MULTIPLE = 32
GAP = 6
PLACES = ("1st", "2nd", "3rd", "4th", "5th", "6th")


@dataclass(frozen=True)
class Wording:
    """How a strip is asked about; ``{}`` takes the phrase that is the query span.

    Attributes:
        ordinal: names a place; the answer describes what is there.
        referring: describes a panel; the answer names its place.
        place: the phrase for a place, ``{}`` takes 1st to 6th.
    """

    ordinal: str
    referring: str
    place: str

    def asks(self, captions: Sequence[str] | None, query: str, what: str) -> tuple[Ask, ...]:
        """The six asks of a strip.

        Args:
            captions: what each panel shows; ``None`` where the corpus has none.
            query: ``ord`` or ``ref``.
            what: names the strip in errors.
        """
        if captions is not None and len(captions) != PANELS:
            raise HarnessHeadsError(f"{what}: {len(captions)} captions for {PANELS} panels")
        if query == "ref":
            return self._referring(captions, what)
        asks = []
        for index, place in enumerate(PLACES):
            text, span = phrase_in(self.ordinal, self.place.replace("{}", place))
            asks.append(Ask(text, span, panel_name(index), None if captions is None else captions[index]))
        return tuple(asks)

    def _referring(self, captions: Sequence[str] | None, what: str) -> tuple[Ask, ...]:
        if captions is None:
            raise HarnessHeadsError(f"{what}: a referring query needs captions, this corpus has none")
        words = [caption.strip() for caption in captions]
        for index, caption in enumerate(words):
            if not caption:
                raise HarnessHeadsError(f"{what}: the caption of panel {index + 1} is empty")
            if words.count(caption) > 1:
                raise HarnessHeadsError(
                    f"{what}: two panels share the caption {caption!r}, which then refers to neither"
                )
        asks = []
        for index, caption in enumerate(words):
            text, span = phrase_in(self.referring, caption)
            asks.append(Ask(text, span, panel_name(index), PLACES[index]))
        return tuple(asks)


COMIC_WORDING = Wording(
    "Look carefully at this six-panel comic strip. What is happening in {}? Answer briefly.",
    "Look carefully at this six-panel comic strip. Which panel from the left shows this: {}\nAnswer briefly.",
    "the {} panel from the left",
)
"""Ordinal: the public gaze-heads code's prompt. Referring: ours, in the same frame; paper A's is not in its text. The
caption stands between white space, because a quotation mark would share a token with the caption's own full stop."""

PHOTO_WORDING = Wording(
    "Look carefully at this strip of six pictures. What is happening in {}? Answer briefly.",
    "Look carefully at this strip of six pictures. Which picture from the left shows this: {}\nAnswer briefly.",
    "the {} picture from the left",
)


def panel_name(index: int) -> str:
    """Region name of a panel, from 0."""
    return f"panel {index + 1}"


def stitch(panels: Sequence[Image.Image], what: str) -> tuple[Image.Image, dict[str, Region]]:
    """One strip from six panels, as the public gaze-heads code makes it.

    Every panel is resized to a height of 256 px and a width that is the nearest multiple of 32; panels stand side by
    side without spacing, and a white gap of 6 px is drawn over each border: panel widths still sum to the strip.

    Returns:
        The strip and its panels' regions, ``panel 1`` to ``panel 6``.

    Raises:
        HarnessHeadsError: naming ``what``, if there are not six panels.
    """
    if len(panels) != PANELS:
        raise HarnessHeadsError(f"{what}: a strip has {PANELS} panels, this one has {len(panels)}")
    resized = []
    for panel in panels:
        width = max(MULTIPLE, round(panel.width * HEIGHT / panel.height / MULTIPLE) * MULTIPLE)
        resized.append(panel.resize((width, HEIGHT), Image.Resampling.LANCZOS))
    strip = Image.new("RGB", (sum(p.width for p in resized), HEIGHT), "white")
    boxes: list[Box] = []
    x = 0
    for panel in resized:
        strip.paste(panel, (x, 0))
        boxes.append((float(x), 0.0, float(x + panel.width), float(HEIGHT)))
        x += panel.width
    draw = ImageDraw.Draw(strip)
    for box in boxes[1:]:
        border = int(box[0])
        draw.rectangle((border - GAP // 2, 0, border + GAP // 2 - 1, HEIGHT - 1), fill="white")
    return strip, {panel_name(i): Region((box,)) for i, box in enumerate(boxes)}
