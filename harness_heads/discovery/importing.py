"""Foreign head lists: CSV, JSON, or text such as ``16-19,16-2``."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef
from harness_heads.plain import is_number, number, shown

Order = Literal["layer,head", "head,layer"]
_PAIR = re.compile(r"^\(?\s*L?([0-9]{1,9})\s*[-:./,]\s*H?([0-9]{1,9})\s*\)?$")
_NAMES = {"layer": ("layer", "l", "layer_idx", "layer_index"), "head": ("head", "h", "head_idx", "head_index")}
_SCORE = ("score", "mean", "value", "weight")


@dataclass(frozen=True)
class Row:
    """Two numbers as they stand in the file, in its order, and a score where there is one."""

    first: int
    second: int
    score: float | None = None


def import_heads(
    source: str,
    *,
    name: str,
    model: ModelRef,
    geometry: Geometry,
    order: Order = "layer,head",
    base: int = 0,
) -> HeadSet:
    """Read a foreign list.

    Args:
        source: a file (``.csv``, ``.tsv``, ``.json`` or text), or the list itself (``16-19,16-2``).
        name: of the new set.
        order: what the first number of a pair is. A CSV with named columns, and JSON objects, say it themselves.
        base: 0 or 1, the index of the first layer and head.

    Raises:
        HarnessHeadsError: a pair that is none, an index out of range (with a hint at order and base), a duplicate.
    """
    if base not in (0, 1):
        raise HarnessHeadsError(f"base={base}: indices count from 0 or from 1")
    if order not in ("layer,head", "head,layer"):
        raise HarnessHeadsError(f"order={order!r}: write layer,head or head,layer")
    path = Path(source).expanduser()
    text, where = source, "the list"
    if _is_file(path):
        text, where = _read(path), path.name
    elif path.suffix in (".csv", ".tsv", ".json", ".txt"):
        raise HarnessHeadsError(f"{source}: no such file")
    rows, named = _parse(text, where, path.suffix if _is_file(path) else "")
    if not rows:
        raise HarnessHeadsError(f"{where}: no head in it")
    layer_first = named or order == "layer,head"
    heads = []
    for row in rows:
        layer, head = (row.first, row.second) if layer_first else (row.second, row.first)
        if min(layer, head) < base:
            raise HarnessHeadsError(f"{where}: {layer}.{head} lies below base {base}; give --base 0")
        heads.append(Head(layer - base, head - base))
    _check_range(heads, geometry, where, order, base)
    provenance = {
        "kind": "imported",
        "source": where,
        "sha256": hashlib.sha256(text.encode()).hexdigest()[:16],
        "order": "as its columns say" if named else order,
        "base": base,
    }
    return HeadSet(name, model, geometry, tuple(heads), tuple(row.score for row in rows), provenance)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise HarnessHeadsError(f"{path.name}: it cannot be read as text ({error}); save it as UTF-8") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a long list is no path
        return False


def _check_range(heads: list[Head], geometry: Geometry, where: str, order: Order, base: int) -> None:
    for head in heads:
        try:
            geometry.check(head, where)
        except HarnessHeadsError as error:
            hints = [f"--order {'head,layer' if order == 'layer,head' else 'layer,head'}"]
            if base == 0:
                hints.append("--base 1")
            raise HarnessHeadsError(
                f"{error} (read with --order {order} --base {base}; try {' or '.join(hints)})"
            ) from error


def _parse(text: str, where: str, suffix: str) -> tuple[list[Row], bool]:
    """Rows, and whether the file names its columns itself."""
    stripped = text.strip()
    if suffix == ".json" or stripped[:1] in ("{", "["):
        try:
            return _from_json(json.loads(stripped), where)
        except (ValueError, RecursionError) as error:
            if isinstance(error, HarnessHeadsError):
                raise
            raise HarnessHeadsError(f"{where}: it is not JSON ({error})") from error
    if suffix in (".csv", ".tsv"):
        return _from_csv(stripped, where, "\t" if suffix == ".tsv" else ",")
    return [_pair(part, where) for part in _split(stripped)], False


def _split(text: str) -> list[str]:
    """Parts of a text list: at semicolons, white space, and commas outside brackets."""
    joined = re.sub(r"\s*([,:./-])\s*", r"\1", text)
    return [part for part in re.split(r"[;\s]+|,(?![^(]*\))", joined) if part]


def _pair(part: str, where: str) -> Row:
    found = _PAIR.match(part.strip())
    if found is None:
        raise HarnessHeadsError(f"{where}: {part.strip()!r} is no head; write 16-19, (16,19) or L16.H19")
    return Row(int(found[1]), int(found[2]))


def _from_csv(text: str, where: str, delimiter: str) -> tuple[list[Row], bool]:
    lines = [line for line in csv.reader(io.StringIO(text), delimiter=delimiter) if any(cell.strip() for cell in line)]
    if not lines:
        return [], False
    header = [cell.strip().lower() for cell in lines[0]]
    columns = {kind: next((header.index(n) for n in names if n in header), None) for kind, names in _NAMES.items()}
    layer, head = columns["layer"], columns["head"]
    named = layer is not None and head is not None
    score = next((header.index(n) for n in _SCORE if n in header), None) if named else 2
    if layer is None or head is None:
        layer, head = 0, 1
    rows = []
    for place, line in enumerate(lines[1:] if named else lines, start=2 if named else 1):
        what = f"{where}, row {place}"
        if len(line) <= max(layer, head):
            raise HarnessHeadsError(f"{what}: {','.join(line)!r} has no two columns")
        extra = line[score].strip() if score is not None and len(line) > score else ""
        rows.append(Row(_index(line[layer], what), _index(line[head], what), _score(extra, what)))
    return rows, named


def _from_json(value: Any, where: str) -> tuple[list[Row], bool]:
    """A list of pairs, of objects or of strings; or an object that holds one, or that maps "l-h" to scores."""
    if isinstance(value, dict):
        for key in ("heads", "top_heads", "selected_heads", "head_list"):
            if key in value:
                return _from_json(value[key], where)
        rows = []
        for key, score in value.items():
            pair = _pair(str(key), where)
            if isinstance(score, list):  # retrieval-head files list one score a test
                tests = [number(s, f"{where}: score of {key}") for s in score]
                score = sum(tests) / len(tests) if tests else None
            rows.append(Row(pair.first, pair.second, _score(score, f"{where}: {key}")))
        rows.sort(key=lambda r: -(r.score if r.score is not None else float("-inf")))
        return rows, False
    if not isinstance(value, list):
        raise HarnessHeadsError(f"{where}: heads are a list, this is a {type(value).__name__}")
    rows, named = [], False
    for item in value:
        if isinstance(item, str):
            rows.append(_pair(item, where))
        elif isinstance(item, list) and len(item) in (2, 3):
            score = item[2] if len(item) == 3 else None
            what = f"{where}: {shown(item)}"
            rows.append(Row(_index(item[0], what), _index(item[1], what), _score(score, what)))
        elif isinstance(item, dict):
            lowered = {str(k).lower(): v for k, v in item.items()}
            found = {k: next((lowered[n] for n in names if n in lowered), None) for k, names in _NAMES.items()}
            score = next((lowered[n] for n in _SCORE if n in lowered), None)
            named = True
            what = f"{where}: {shown(item)}"
            rows.append(Row(_index(found["layer"], what), _index(found["head"], what), _score(score, what)))
        else:
            raise HarnessHeadsError(f"{where}: {shown(item)} is no head; write [layer, head]")
    return rows, named


def _index(value: Any, what: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HarnessHeadsError(f"{what}: {shown(text)} is no index; layers and heads are whole numbers")
    return int(text)


def _score(value: Any, what: str) -> float | None:
    """A finite score, from a number or its text; ``None`` where there is none."""
    if value is None or value == "":
        return None
    try:
        found = float(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if found is None or not is_number(found):
        raise HarnessHeadsError(f"{what}: {shown(value)} is no score; write a finite number, or leave it out")
    return float(found)
