"""ClassPool: labelled images by class, and which class names cannot stand beside each other as options."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from harness_heads.errors import HarnessHeadsError
from harness_heads.plain import is_index, shown
from harness_heads.tasks.items import Picture
from harness_heads.tasks.sources import BadImage, Source
from harness_heads.tasks.spec import TaskSpec


class ClassPool:
    """Rows of a labelled image set by class.

    Args:
        source: rows.
        spec: its columns ``image`` and ``label`` (class numbers with names, or the names themselves).
        rng: order in which a class gives its rows; each row is given once before any comes again.
        synonyms: whether a comma in a name separates synonyms (ImageNet) or is a comma (captions).
    """

    def __init__(self, source: Source, spec: TaskSpec, rng: np.random.Generator, *, synonyms: bool = True) -> None:
        label = source.need(spec.columns["label"])
        self._source, self._image = source, source.need(spec.columns["image"])
        names = source.names(label)
        rows: dict[str, list[int]] = {}
        names_of: dict[str, tuple[str, ...]] = {}
        for row in range(len(source)):
            value = source.value(row, label)
            if isinstance(value, (list, tuple)):  # captions: the first stands for the image
                value = value[0] if value else ""
            if value is None or (isinstance(value, int) and value == -1):  # ImageNet's test split has labels -1
                continue
            full = self._full_name(value, names, f"{source.label}: row {row}, column {label!r}")
            if not full:
                continue
            key = f"{value}:{full}" if names is not None else full  # "crane" is two classes
            rows.setdefault(key, []).append(row)
            names_of[key] = split_synonyms(full) if synonyms else (full,)
        self.classes = tuple(sorted(rows))
        self._synonyms = names_of
        self._queues: dict[str, list[int]] = {
            key: [rows[key][int(i)] for i in rng.permutation(len(rows[key]))] for key in self.classes
        }
        self._given = dict.fromkeys(self.classes, 0)
        if len(self.classes) < 5:
            raise HarnessHeadsError(
                f"{spec.task}: {source.label} has {len(self.classes)} classes; four options and a fifth are needed"
            )

    @staticmethod
    def _full_name(value: Any, names: Sequence[str] | None, where: str) -> str:
        """Class name of a label: the name itself, or a number of the list of names."""
        if names is not None:
            if not is_index(value) or value >= len(names):
                raise HarnessHeadsError(f"{where}: {shown(value)} is no class number 0..{len(names) - 1}")
            return str(names[int(value)])
        if not isinstance(value, str | int | float):
            raise HarnessHeadsError(f"{where}: a {type(value).__name__} is no class name; map another column")
        return str(value).strip()

    def name(self, key: str) -> str:
        """What stands as the option: the first synonym."""
        return self._synonyms[key][0]

    def next_picture(self, key: str) -> Picture:
        """The class's next image; starts over when all were given.

        Bad images are an error, or are left out and counted if the source decodes first (``bad_images: skip``).
        """
        while True:
            queue = self._queues[key]
            if not queue:
                raise BadImage(f"{self._source.label}: class {self.name(key)!r} has no usable image left")
            row = queue[self._given[key] % len(queue)]
            try:
                picture = self._source.picture(row, self._image)
            except BadImage:
                if not self._source.decode_first:
                    raise
                queue.remove(row)
                continue
            self._given[key] += 1
            return picture

    def clash(self, a: str, b: str) -> bool:
        """Whether two classes cannot be told apart by name: a shared synonym, or one name within the other."""
        return a == b or _clash(self._synonyms[a], self._synonyms[b])

    def draw(self, count: int, avoid: Sequence[str], rng: np.random.Generator) -> list[str]:
        """``count`` further classes that clash with none of ``avoid`` nor with each other.

        Raises:
            HarnessHeadsError: if the names leave too few.
        """
        chosen: list[str] = []
        for i in rng.permutation(len(self.classes)):
            key = self.classes[i]
            if not any(self.clash(key, other) for other in (*avoid, *chosen)):
                chosen.append(key)
                if len(chosen) == count:
                    return chosen
        raise HarnessHeadsError(
            f"class names: beside {', '.join(map(self.name, avoid))!r} only {len(chosen)} of {count} unambiguous "
            "classes are left; give data with more, or more distinct, class names"
        )

    def targets(self, n: int, rng: np.random.Generator) -> list[str]:
        """The right classes of ``n`` items: every class once before any comes twice."""
        rounds = [rng.permutation(len(self.classes)) for _ in range(-(-n // len(self.classes)))]
        return [self.classes[i] for order in rounds for i in order][:n]


def split_synonyms(name: str) -> tuple[str, ...]:
    """ImageNet's names are comma-joined synonyms; at least one part, white space made single.

    A number at the end of a word only keeps label names unique (``crane2``): it is cut, and the two then clash.
    """
    parts = tuple(re.sub(r"(?<=[a-z])\d+$", "", " ".join(part.split())) for part in name.split(","))
    return tuple(part for part in parts if part) or (name,)


@cache
def _words(name: str) -> tuple[str, ...]:
    """Comparable words: one spelling of accents, case, punctuation and plural."""
    text = "".join(c if c.isalnum() or unicodedata.combining(c) else " " for c in unicodedata.normalize("NFC", name))
    return tuple(_singular(word) for word in text.casefold().split())


def _singular(word: str) -> str:
    """One form for singular and plural: ``sunglass`` and ``sunglasses`` are two classes of ImageNet."""
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@cache
def _clash(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    words_a, words_b = {_words(n) for n in a}, {_words(n) for n in b}
    if words_a & words_b:
        return True
    first_a, first_b = _words(a[0]), _words(b[0])
    return _within(first_a, first_b) or _within(first_b, first_a)


def _within(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    """Whether ``short`` is a run of words in ``long``; nothing is within what it is longer than."""
    size = len(short)
    return any(long[i : i + size] == short for i in range(len(long) - size + 1))
