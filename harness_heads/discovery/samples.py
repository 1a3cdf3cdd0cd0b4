"""Sample and Ask: what a corpus hands to discovery, whatever data set it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import Region, decode, safe_image


class CorruptImageError(HarnessHeadsError):
    """An image that cannot be decoded; the run stops at it, or skips its sample where that was asked for."""


@dataclass(frozen=True)
class Ask:
    """One prompt of a sample.

    Attributes:
        text: the user's words after the images.
        span: character offsets of the phrase in ``text`` that singles out the region.
        target: name of the region that the phrase means.
        answer: what a right answer says, for teacher forcing; ``None`` where the corpus has none.
    """

    text: str
    span: tuple[int, int]
    target: str
    answer: str | None = None

    def __post_init__(self) -> None:
        start, stop = self.span
        if not 0 <= start < stop <= len(self.text):
            raise HarnessHeadsError(f"query {self.text!r}: the span {self.span} does not lie in it")

    @property
    def phrase(self) -> str:
        """The words of the span."""
        return self.text[self.span[0] : self.span[1]]


@dataclass(frozen=True)
class Sample:
    """One of the N samples that scores are averaged over: a strip with its six asks, or a picture with one.

    Attributes:
        id: name of the sample in its corpus.
        cluster: what several samples may share (an image); half-splits keep clusters together.
        images: as shown, already safe (see :func:`harness_heads.regions.safe_image`).
        regions: named regions in pixels of the images.
        asks: the prompts; the sample's score is the mean over them.
    """

    id: str
    cluster: str
    images: tuple[Image.Image, ...]
    regions: Mapping[str, Region]
    asks: tuple[Ask, ...]

    def __post_init__(self) -> None:
        if not self.asks:
            raise HarnessHeadsError(f"sample {self.id!r}: no query")
        for ask in self.asks:
            if ask.target not in self.regions:
                raise HarnessHeadsError(f"sample {self.id!r}: no region {ask.target!r} for {ask.text!r}")
        for name, region in self.regions.items():
            if not 0 <= region.image < len(self.images):
                raise HarnessHeadsError(
                    f"sample {self.id!r}: region {name!r} is of image {region.image}, which is not there"
                )
            region.inside(*self.images[region.image].size, f"sample {self.id!r}, region {name!r}")


class Corpus(Protocol):
    """A declared recipe that turns a data set into samples.

    Attributes:
        name: short name.
        provenance: data set, split, revision or digest, and the recipe's own choices; plain JSON.
    """

    name: str
    provenance: Mapping[str, Any]

    def __len__(self) -> int:
        """How many samples there are."""
        ...

    def sample(self, index: int, query: str) -> Sample:
        """Sample ``index`` asked by ``query`` (``ord``, ``ref`` or ``loc``); images are opened here."""
        ...


def choose(size: int, n: int, seed: int, what: str) -> list[int]:
    """``n`` of ``size`` samples in a seeded order; a smaller ``n`` takes a prefix of a larger one.

    Raises:
        HarnessHeadsError: an empty corpus, ``n`` below 1 or above the size.
    """
    if size == 0:
        raise HarnessHeadsError(f"corpus {what}: it is empty")
    if n < 1:
        raise HarnessHeadsError(f"corpus {what}: n={n}; at least one sample is needed")
    if n > size:
        raise HarnessHeadsError(
            f"corpus {what}: n={n} samples were asked for, it holds {size}; give --n {size} or less"
        )
    return [int(i) for i in np.random.default_rng([seed, 0xC0]).permutation(size)[:n]]


def open_image(source: Path | Image.Image | None, what: str) -> Image.Image:
    """The picture, decoded and made safe.

    Raises:
        CorruptImageError: naming ``what``, if it is absent or cannot be decoded.
    """
    if source is None:
        raise CorruptImageError(f"{what}: no image")
    try:
        image = source if isinstance(source, Image.Image) else Image.open(source)
        decode(image)
    except FileNotFoundError as error:
        raise CorruptImageError(f"{what}: image file {source} does not exist") from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise CorruptImageError(f"{what}: the image cannot be decoded ({error})") from error
    return safe_image(image, what)


def phrase_in(template: str, phrase: str) -> tuple[str, tuple[int, int]]:
    """Fill ``{}`` of a template with a phrase; the text and the phrase's character offsets."""
    before, marker, after = template.partition("{}")
    if not marker:
        raise HarnessHeadsError(f"wording {template!r} has no {{}} for the phrase")
    return before + phrase + after, (len(before), len(before) + len(phrase))


def boxes_region(boxes: Iterable[Sequence[float]], image: int = 0) -> Region:
    """Region of one image from ``[x0, y0, x1, y1]`` lists in pixels."""
    return Region(tuple((float(b[0]), float(b[1]), float(b[2]), float(b[3])) for b in boxes), image)
