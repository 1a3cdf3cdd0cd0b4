"""The user's own corpus: a YAML file, or a folder that holds ``corpus.yaml``.

Strips (for settings) list six panels and, for referring queries, six captions; boxes (for methods) list a picture, a
phrase and its boxes. Paths are relative to the file::

    kind: strips                              kind: boxes
    items:                                    prompt: "Locate {expression} in this image."
      - panels: [a.png, ..., f.png]           items:
        captions: ["A man runs.", ...]          - image: a.png
                                                  phrase: the red cup
                                                  boxes: [[10, 20, 110, 90]]

A folder without ``corpus.yaml`` holds one strip a subfolder: six pictures in the order of their names and, for
referring queries, ``captions.txt`` with six lines.

Instead of a prompt, an item may bring its whole ``text``, in which its ``phrase`` occurs once; ``answer`` is optional.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness_heads.discovery.corpora.strips import PHOTO_WORDING, Wording, stitch
from harness_heads.discovery.samples import Ask, Corpus, Sample, boxes_region, open_image, phrase_in
from harness_heads.errors import HarnessHeadsError, did_you_mean

_TOP = ("kind", "items", "prompt", "wording")
_STRIP = ("panels", "captions", "cluster")
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_BOX = ("image", "phrase", "boxes", "text", "answer", "cluster")


def open_user(path: Path | None, prompt: str = "") -> Corpus:
    """Read the user's corpus.

    Args:
        path: YAML file, or folder with ``corpus.yaml``.
        prompt: the model family's grounding prompt, for boxes without one of their own.

    Raises:
        HarnessHeadsError: no file, no YAML, an unknown or missing key; it names the item.
    """
    if path is None:
        raise HarnessHeadsError("corpus user: give --data with your YAML file or folder, see docs/discovery.md")
    if path.is_dir() and not (path / "corpus.yaml").exists():
        return _strip_folders(path)
    file = path / "corpus.yaml" if path.is_dir() else path
    try:
        raw = file.read_bytes()
        value = yaml.safe_load(raw)
    except FileNotFoundError as error:
        raise HarnessHeadsError(f"corpus user: {file} does not exist") from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise HarnessHeadsError(f"corpus user: {file} is not YAML ({where})") from error
    if not isinstance(value, dict):
        raise HarnessHeadsError(f"corpus user: {file} must hold kind and items, see docs/discovery.md")
    _check_keys(value, _TOP, f"corpus user: {file.name}")
    kind, items = value.get("kind"), value.get("items")
    if kind not in ("strips", "boxes"):
        raise HarnessHeadsError(f"corpus user: {file.name}: kind is strips or boxes, not {kind!r}")
    if not isinstance(items, list):
        raise HarnessHeadsError(f"corpus user: {file.name}: items is a list")
    digest = _digest(raw, [file.parent / name for name in _pictures(items)])
    notes = {"corpus": "user", "file": file.name, "sha256": digest, "kind": kind}
    if kind == "strips":
        own = value.get("wording") or {}
        _check_keys(own, tuple(vars(PHOTO_WORDING)), f"corpus user: {file.name}: wording")
        wording = Wording(**{**vars(PHOTO_WORDING), **{k: str(v) for k, v in own.items()}})
        return _Strips(file, items, wording, notes)
    return _Boxes(file, items, str(value.get("prompt") or prompt), notes)


def _strip_folders(path: Path) -> Corpus:
    items = []
    for folder in sorted(p for p in path.iterdir() if p.is_dir()):
        pictures = sorted(p for p in folder.iterdir() if p.suffix.lower() in _PICTURES)
        item: dict[str, Any] = {"panels": [str(p.relative_to(path)) for p in pictures], "cluster": folder.name}
        captions = folder / "captions.txt"
        if captions.exists():
            item["captions"] = captions.read_text(encoding="utf-8").strip().splitlines()
        items.append(item)
    digest = _digest(json.dumps(items).encode(), [path / name for name in _pictures(items)])
    notes = {"corpus": "user", "folder": path.name, "sha256": digest, "kind": "strips"}
    return _Strips(path / "strips", items, PHOTO_WORDING, notes)


def _pictures(items: list[Any]) -> list[str]:
    """Names of all pictures that the items give, whatever else is wrong with them."""
    names = []
    for item in items:
        if isinstance(item, dict):
            panels = item.get("panels")
            names += [str(p) for p in (panels if isinstance(panels, list) else [item.get("image")])]
    return names


def _digest(words: bytes, pictures: list[Path]) -> str:
    """16 hex digits of what the corpus says and shows: a run on other pictures is another run."""
    digest = hashlib.sha256(words)
    for picture in pictures:
        digest.update(picture.read_bytes() if picture.is_file() else b"absent")
    return digest.hexdigest()[:16]


def _check_keys(value: Any, known: tuple[str, ...], what: str) -> None:
    if not isinstance(value, dict):
        raise HarnessHeadsError(f"{what}: it is no mapping of keys")
    for key in value:
        if key not in known:
            raise HarnessHeadsError(f"{what}: unknown key {key!r}{did_you_mean(str(key), known)}")


class _Strips:
    name = "user"

    def __init__(self, file: Path, items: list[Any], wording: Wording, notes: Mapping[str, Any]) -> None:
        self._file, self._items, self._wording = file, items, wording
        self.provenance: Mapping[str, Any] = {**notes, "wording": vars(wording)}

    def __len__(self) -> int:
        return len(self._items)

    def sample(self, index: int, query: str) -> Sample:
        item, name = self._items[index], f"{self._file.name}, item {index + 1}"
        _check_keys(item, _STRIP, name)
        paths = item.get("panels")
        if not isinstance(paths, list):
            raise HarnessHeadsError(f"{name}: panels is a list of six pictures")
        panels = [open_image(self._file.parent / str(p), f"{name}, {p}") for p in paths]
        captions = item.get("captions")
        strip, regions = stitch(panels, name)
        asks = self._wording.asks(None if captions is None else [str(c) for c in captions], query, name)
        return Sample(name, str(item.get("cluster", name)), (strip,), regions, asks)


class _Boxes:
    name = "user"

    def __init__(self, file: Path, items: list[Any], prompt: str, notes: Mapping[str, Any]) -> None:
        self._file, self._items, self._prompt = file, items, prompt
        self.provenance: Mapping[str, Any] = {**notes, "prompt": prompt}

    def __len__(self) -> int:
        return len(self._items)

    def sample(self, index: int, query: str) -> Sample:
        item, name = self._items[index], f"{self._file.name}, item {index + 1}"
        _check_keys(item, _BOX, name)
        for key in ("image", "phrase", "boxes"):
            if key not in item:
                raise HarnessHeadsError(f"{name}: no {key}")
        phrase = str(item["phrase"])
        if not phrase.strip():
            raise HarnessHeadsError(f"{name}: its phrase is empty")
        image = open_image(self._file.parent / str(item["image"]), f"{name}, {item['image']}")
        text, span = self._text(item, phrase, name)
        answer = None if item.get("answer") is None else str(item["answer"])
        try:
            region = boxes_region(item["boxes"])
        except (TypeError, IndexError, ValueError) as error:
            if isinstance(error, HarnessHeadsError):
                raise HarnessHeadsError(f"{name}: {error}") from error
            raise HarnessHeadsError(f"{name}: boxes is a list of [x0, y0, x1, y1] in pixels") from error
        cluster = str(item.get("cluster", item["image"]))
        return Sample(name, cluster, (image,), {"referent": region}, (Ask(text, span, "referent", answer),))

    def _text(self, item: Mapping[str, Any], phrase: str, name: str) -> tuple[str, tuple[int, int]]:
        if item.get("text") is None:
            if "{expression}" not in self._prompt:
                raise HarnessHeadsError(f"{name}: give text, or a prompt with {{expression}} at the top of the file")
            return phrase_in(self._prompt.replace("{expression}", "{}"), phrase)
        text = str(item["text"])
        if text.count(phrase) != 1:
            raise HarnessHeadsError(f"{name}: the phrase {phrase!r} occurs {text.count(phrase)} times in its text")
        start = text.index(phrase)
        return text, (start, start + len(phrase))
