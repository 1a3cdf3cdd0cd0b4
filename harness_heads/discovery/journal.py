"""The journal of a discovery pass: every sample's measures are on disk before the next samples are read."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness_heads.errors import HarnessHeadsError

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Entry:
    """One sample in the journal.

    Attributes:
        id, cluster: of the sample.
        values: measures, float32 (S, V, L, H); ``None`` where the sample was skipped.
        notes: counts and the reason of a skip; plain JSON.
    """

    id: str
    cluster: str
    values: NDArray[np.float32] | None
    notes: Mapping[str, Any] = field(default_factory=dict)


class PassJournal:
    """Append-only file of one pass; a later run with the same fingerprint goes on where it ended.

    Args:
        path: the file; ``None`` keeps everything in memory.
        fingerprint: what all samples share (model, weights, corpus, options, code); plain JSON.

    Raises:
        HarnessHeadsError: the file belongs to another run, or a line other than the last is damaged.
    """

    def __init__(self, path: Path | None, fingerprint: Mapping[str, Any]) -> None:
        self._path = path
        self._digest = hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:32]
        self._entries: dict[str, Entry] = {}
        if path is None:
            return
        if path.exists() and path.stat().st_size:
            self._read(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append([{"schema": SCHEMA, "run": self._digest, "fingerprint": fingerprint}])
        self.resumed = len(self._entries)

    resumed: int = 0

    def get(self, sample: str) -> Entry | None:
        """What is stored of a sample."""
        return self._entries.get(sample)

    def put(self, entries: list[Entry]) -> None:
        """Store samples and flush them to disk."""
        self._entries.update({entry.id: entry for entry in entries})
        if self._path is not None:
            self._append([_to_line(entry) for entry in entries])

    def _append(self, lines: list[Mapping[str, Any]]) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise HarnessHeadsError(f"journal {self._path} cannot be written: {error}") from error

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise HarnessHeadsError(f"journal {path} cannot be read: {error}") from error
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                value = json.loads(line)
                if number == 1:
                    self._check(path, value)
                else:
                    entry = _from_line(value)
                    self._entries[entry.id] = entry
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                if isinstance(error, HarnessHeadsError):
                    raise
                if number == len(lines) and number > 1:  # torn by a kill while it was written
                    path.write_bytes(b"\n".join(lines[:-1]) + b"\n")
                    break
                raise HarnessHeadsError(
                    f"journal {path}: line {number} is damaged; remove it, or start afresh"
                ) from error
        else:
            if lines[-1]:  # whole, but killed before its line ended: the next one must not be glued to it
                path.write_bytes(b"\n".join(lines) + b"\n")

    def _check(self, path: Path, header: Mapping[str, Any]) -> None:
        if header["run"] != self._digest:
            raise HarnessHeadsError(
                f"journal {path} belongs to another run (model, corpus, options or code differ); "
                "choose another --output, or --fresh to start over"
            )


def _to_line(entry: Entry) -> dict[str, Any]:
    line: dict[str, Any] = {"id": entry.id, "cluster": entry.cluster, "notes": dict(entry.notes)}
    if entry.values is not None:
        values = np.ascontiguousarray(entry.values, dtype="<f4")
        line["shape"] = list(values.shape)
        line["float32"] = base64.b64encode(values.tobytes()).decode("ascii")
    return line


def _from_line(value: Mapping[str, Any]) -> Entry:
    values = None
    if "float32" in value:
        flat = np.frombuffer(base64.b64decode(value["float32"]), dtype="<f4")
        values = flat.reshape(value["shape"]).astype(np.float32)
    return Entry(value["id"], value["cluster"], values, value["notes"])
