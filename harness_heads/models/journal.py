"""The journal: every answered request is on disk before the next one starts, so that a killed run goes on.

One JSON line per answer: ``{"schema", "key", "task", "item", "arm", "response"}``. The key is a digest of everything
that decides the answer (model, weights, sets, settings, probe, code), so a line can never answer for another run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import Probe

SCHEMA = 1


class Journal:
    """Append-only record of answers in one file; ``None`` as path keeps it in memory.

    Args:
        path: ``journal.jsonl`` of the run folder.
        fingerprint: what all answers of this run share (model, tables, settings, code version), plain JSON.
    """

    def __init__(self, path: Path | None, fingerprint: Mapping[str, Any]) -> None:
        self._path = path
        self._base = json.dumps(fingerprint, sort_keys=True)
        self._answers: dict[str, str] = {}
        self.resumed = 0
        if path is not None and path.exists():
            self._read(path)

    def key(self, probe: Probe) -> str:
        """Digest of the run's fingerprint and the probe."""
        text = self._base + json.dumps(probe.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def get(self, probe: Probe) -> str | None:
        """The stored response, or ``None``."""
        return self._answers.get(self.key(probe))

    def put(self, probe: Probe, response: str) -> None:
        """Store a response and flush it to disk."""
        key = self.key(probe)
        self._answers[key] = response
        if self._path is None:
            return
        line = {
            "schema": SCHEMA,
            "key": key,
            "task": probe.task,
            "item": probe.item,
            "arm": probe.arm,
            "response": response,
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise HarnessHeadsError(f"journal {self._path} cannot be written: {error}") from error

    def _read(self, path: Path) -> None:
        """Load earlier answers; a torn last line (killed while writing) is cut off, any other damage is an error."""
        lines = path.read_bytes().split(b"\n")
        good = 0
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                value = json.loads(line)
                self._answers[value["key"]] = value["response"]
            except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
                if number == len(lines):
                    path.write_bytes(b"\n".join(lines[:-1]) + b"\n")
                    break
                raise HarnessHeadsError(
                    f"journal {path}: line {number} is damaged; remove that line to answer its request again"
                ) from error
            good += 1
        self.resumed = good
