"""Item and Arm: what a recipe builds; and the plain document that lmms-eval carries.

A document describes its pictures instead of holding them (:mod:`harness_heads.tasks.pictures` paints them when a
request is answered), so it is plain JSON, the same on every rank, and its id is a hash of its content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_heads.conditions import Condition
from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import Ask, Probe, item_id
from harness_heads.regions import Region
from harness_heads.tasks.spec import TaskSpec

Picture = dict[str, Any]
"""Description of one picture; see :mod:`harness_heads.tasks.pictures` for the kinds."""
Doc = dict[str, Any]
"""``{item, index, cluster, options, letters, correct, arms: {arm: {text, pictures, probe}}, extra}``."""

LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class Arm:
    """One version of an item: one request.

    Attributes:
        text: the user turn's text.
        pictures: descriptions of its images.
        ask: what the model returns.
        options: answer strings to score (the letters).
        conditions: what is done; none for arms that are audits.
        regions: named regions in pixels of the painted picture.
        expression: the referring expression of ``locate``.
    """

    text: str
    pictures: tuple[Picture, ...]
    ask: Ask = "options"
    options: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    regions: Mapping[str, Region] = field(default_factory=dict)
    expression: str | None = None


@dataclass(frozen=True)
class Item:
    """One item of a task, before it has an id.

    Attributes:
        options: option texts in letter order (empty for open answers and boxes).
        correct: index of the right option, ``None`` where there are no options.
        arms: at least one; the first is the main arm.
        cluster: what several items may share (an image), resampled whole.
        extra: recipe-specific facts for the record.
    """

    options: tuple[str, ...]
    correct: int | None
    arms: Mapping[str, Arm]
    cluster: str
    extra: Mapping[str, Any] = field(default_factory=dict)


def to_docs(items: Sequence[Item], spec: TaskSpec, version: int) -> list[Doc]:
    """Documents of a task in order.

    Raises:
        HarnessHeadsError: if two items have equal content (they would count twice).
    """
    # one list of letters for the whole task: readers of records stack log-probabilities by letter
    letters = LETTERS[: max((len(item.options) for item in items), default=0)]
    docs = [_to_doc(item, index, spec, version, list(letters)) for index, item in enumerate(items)]
    seen: dict[str, int] = {}
    for doc in docs:
        if doc["item"] in seen:
            raise HarnessHeadsError(
                f"{spec.task}: items {seen[doc['item']]} and {doc['index']} are the same; lower n or give more rows"
            )
        seen[doc["item"]] = doc["index"]
    return docs


def _to_doc(item: Item, index: int, spec: TaskSpec, version: int, letters: list[str]) -> Doc:
    content = {
        "data": spec.data.label,
        "recipe": [spec.recipe, version],
        "options": list(item.options),
        "correct": item.correct,
        "arms": {
            name: [
                arm.text,
                list(arm.pictures),
                arm.ask,
                [c.name for c in arm.conditions],
                {k: r.to_dict() for k, r in arm.regions.items()},
                arm.expression,
            ]
            for name, arm in item.arms.items()
        },
    }
    identity = item_id(content)
    arms = {}
    for name, arm in item.arms.items():
        probe = Probe(
            arm.ask,
            spec.task,
            identity,
            name,
            arm.options or (tuple(letters) if arm.ask == "options" else ()),
            arm.conditions,
            arm.regions,
            arm.expression,
        )
        arms[name] = {"text": arm.text, "pictures": list(arm.pictures), "probe": probe.to_dict()}
    return {
        "item": identity,
        "index": index,
        "cluster": item.cluster,
        "options": list(item.options),
        "letters": letters,
        "correct": item.correct,
        "arms": arms,
        "extra": dict(item.extra),
    }


class Documents(Sequence[Doc]):
    """The documents of one split, in the shape that lmms-eval expects of a ``datasets.Dataset``.

    A real data set would squeeze the documents into one Arrow schema and fill every arm's absent keys with None.
    """

    def __init__(self, docs: Sequence[Doc]) -> None:
        self._docs = tuple(docs)
        self.features = dict.fromkeys(self._docs[0]) if self._docs else {}

    def __len__(self) -> int:
        return len(self._docs)

    def __getitem__(self, index: Any) -> Any:
        return self._docs[index]

    def __iter__(self) -> Iterator[Doc]:
        return iter(self._docs)
