"""The journal: every answered request is on disk before the next one starts, so that a killed run goes on.

One JSON line per answer: ``{"schema", "key", "task", "item", "arm", "response"}``. The key is a digest of everything
that decides the answer (model, weights, sets, settings, probe, code), so a line can never answer for another run. What
cannot be read, or answers less than was asked, is no answer: it is counted, and computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_heads.errors import HarnessHeadsError
from harness_heads.plain import is_number
from harness_heads.probes import Probe, probe_result_from_json

SCHEMA = 1
_BEGIN = b'{"schema":'  # of every line that was ever written


class Journal:
    """Append-only record of answers in one file; ``None`` as path keeps it in memory.

    Args:
        path: ``journal.jsonl`` of the run folder.
        fingerprint: what all answers of this run share (model, tables, settings, code version), plain JSON.

    Attributes:
        damaged: numbers of the lines that cannot be read; their requests are answered again.

    Raises:
        HarnessHeadsError: the file cannot be read, or none of its lines is a journal's.
    """

    def __init__(self, path: Path | None, fingerprint: Mapping[str, Any]) -> None:
        self._path = path
        self._base = json.dumps(fingerprint, sort_keys=True)
        self._answers: dict[str, str] = {}
        self.damaged: tuple[int, ...] = ()
        self._found = self._refused = 0
        if path is not None and path.exists():
            self._read(path)

    def key(self, probe: Probe) -> str:
        """Digest of the run's fingerprint and the probe."""
        text = self._base + json.dumps(probe.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def get(self, probe: Probe) -> str | None:
        """The stored response, or ``None``."""
        return self._answers.get(self.key(probe))

    def kept(self, probe: Probe, conditions: Sequence[str], keys: Sequence[str]) -> str | None:
        """The stored response if it answers all that is asked (:func:`answers_all`), else ``None``."""
        response = self.get(probe)
        if response is None:
            return None
        if not answers_all(response, probe, conditions, keys):
            self._refused += 1
            return None
        self._found += 1
        return response

    def told(self, asked: int) -> Iterator[str]:
        """What is to be said of a journal that was found, of ``asked`` requests."""
        if self._found:
            yield f"{self._found} of {asked} answers found in {self._path}; going on from there"
        if self._refused:
            yield f"{self._refused} answers in {self._path} are damaged or incomplete; they are computed again"
        if self.damaged:
            shown = ", ".join(map(str, self.damaged[:5])) + (", ..." if len(self.damaged) > 5 else "")
            yield f"{self._path} cannot be read at line {shown}; what stood there is computed again"

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
        """Load earlier answers; a torn last line (killed while writing) is cut off."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise HarnessHeadsError(f"journal {path} cannot be read: {error}") from error
        lines = content.split(b"\n")
        damaged = []
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                value = json.loads(line)
                key, response = value["key"], value["response"]
                if not (isinstance(key, str) and isinstance(response, str)):
                    raise TypeError
                self._answers[key] = response
            except (ValueError, RecursionError, KeyError, TypeError):
                damaged.append(number)
        written = sum(map(bool, lines))
        torn = bool(lines[-1]) and len(lines) in damaged and lines[-1][: len(_BEGIN)] == _BEGIN[: len(lines[-1])]
        if torn:
            damaged.remove(len(lines))
        if damaged and len(damaged) == written:
            raise HarnessHeadsError(
                f"journal {path}: no line of it is an answer; move that file away, or name another with journal="
            )
        if lines[-1]:  # the next answer must not be glued to it
            path.write_bytes(b"".join(line + b"\n" for line in (lines[:-1] if torn else lines)))
        self.damaged = tuple(damaged)


def answers_all(response: str, probe: Probe, conditions: Sequence[str], keys: Sequence[str]) -> bool:
    """Whether a stored response answers its probe: every option, or a text, under every condition and set.

    Args:
        response: what the journal holds.
        probe: what was asked.
        conditions: names of the conditions that an answer must hold.
        keys: keys of the sets that it must hold under each.
    """
    try:
        result = probe_result_from_json(response)
        if result is None:
            return False
        if probe.ask == "locate":
            return all(isinstance(result.text[c][k], str) and k in result.boxes[c] for c in conditions for k in keys)
        return all(is_number(result.logprobs[c][k][o]) for c in conditions for k in keys for o in probe.options)
    except (HarnessHeadsError, KeyError, TypeError, RecursionError):
        return False
