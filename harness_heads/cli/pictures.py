"""Pictures for the report's gallery: painted again from the task's own description, where its data lie on this machine.

Run folders hold hashes of images. A task's items are rebuilt from its YAML and data, and a picture is used only if the
item has the same content hash; nothing is fetched from the network for it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.evidence import Evidence, TaskEvidence


def with_pictures(evidence: Evidence) -> Evidence:
    """The evidence with a lazy store of pictures by image hash; unchanged where no task's data are at hand."""
    return replace(evidence, pictures=_Pictures(evidence.tasks))


class _Pictures(Mapping[str, str]):
    """Data URIs by image hash, painted on demand: a gallery shows a handful of hundreds of items."""

    def __init__(self, tasks: tuple[TaskEvidence, ...]) -> None:
        self._places: dict[str, tuple[str, str, str]] = {}
        for task in tasks:
            for item, detail in zip(task.items, task.details, strict=True):
                for arm, shas in (detail.get("images") or {}).items():
                    for sha in shas:
                        self._places.setdefault(sha, (task.task, item, arm))
        self._docs: dict[str, Mapping[str, object] | None] = {}
        self._painted: dict[str, str | None] = {}

    def __getitem__(self, sha: str) -> str:
        if sha not in self._painted:
            self._painted[sha] = self._paint(sha) if sha in self._places else None
        uri = self._painted[sha]
        if uri is None:
            raise KeyError(sha)
        return uri

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, sha: object) -> bool:
        try:
            return bool(self[str(sha)])
        except KeyError:
            return False

    def _paint(self, sha: str) -> str | None:
        from harness_heads.regions import image_sha
        from harness_heads.tasks.pictures import paint

        task, item, arm = self._places[sha]
        built = self._built(task)
        doc = built.get(item) if built is not None else None
        if built is None or doc is None:
            return None
        for picture in doc["arms"][arm]["pictures"]:  # type: ignore[index]  # plain JSON of the item
            image = paint(picture, built["source"])  # type: ignore[arg-type]  # plain JSON of the item
            if image_sha(image) == sha:
                buffer = io.BytesIO()
                image.thumbnail((448, 448))
                image.save(buffer, "PNG", optimize=True)
                return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
        return None

    def _built(self, task: str) -> Mapping[str, object] | None:
        """Documents of a task by item id, with its source; ``None`` where its data are not at hand."""
        if task not in self._docs:
            self._docs[task] = _documents(task)
        return self._docs[task]


def _documents(task: str) -> Mapping[str, object] | None:
    from harness_heads.tasks.catalogue import catalogue
    from harness_heads.tasks.data import BUILT_IN, local_copy, open_data
    from harness_heads.tasks.items import to_docs
    from harness_heads.tasks.recipes import RECIPES
    from harness_heads.tasks.spec import spec_from_config

    config = catalogue().get(task)
    if config is None:
        return None
    try:
        spec = spec_from_config(config)
        if spec.data.path != BUILT_IN and local_copy(spec.data, task) is None:
            return None
        source = open_data(spec.data, task)
        recipe = RECIPES[spec.recipe]
        docs = to_docs(recipe.build(spec, source), spec, recipe.version)
    except HarnessHeadsError:
        return None  # the data moved since the run: the report is as true without pictures
    return {"source": source, **{doc["item"]: doc for doc in docs}}
