"""Plain JSON values, read strictly: a value is of the kind that its reader asks for, or an error names file and item.

``where`` says both, for example ``mine.json: heads[3]``. Nothing is converted: a float is no index, a word no list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from reprlib import Repr
from typing import Any

from harness_heads.errors import HarnessHeadsError

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def read_json(path: Path, what: str) -> Any:
    """The value of a JSON file.

    Raises:
        HarnessHeadsError: naming ``what`` (for example ``head-set file``) and the path, if it is absent, no JSON, or
            has a key twice in one object.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except FileNotFoundError as error:
        raise HarnessHeadsError(f"{what} {path} does not exist") from error
    except OSError as error:
        raise HarnessHeadsError(f"{what} {path} cannot be read ({error.strerror}); name a readable file") from error
    except HarnessHeadsError as error:
        raise HarnessHeadsError(f"{what} {path}: {error}") from error
    except (ValueError, RecursionError) as error:  # ValueError: bad JSON, bad UTF-8, a number of thousands of digits
        raise HarnessHeadsError(f"{what} {path} is not JSON: {error}") from error


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise HarnessHeadsError(f"key {shown(twice)} is written twice; JSON readers keep the last only, remove one")
    return value


def shown(value: object) -> str:
    """A value as messages quote it: on one line, cut where it is long."""
    return _SHORT.repr(value)


def mapping(value: object, where: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise HarnessHeadsError(f"{where} is {shown(value)}; write an object {{...}}")
    return value


def entries(value: object, where: str) -> list[Any]:
    """A JSON list."""
    if not isinstance(value, list):
        raise HarnessHeadsError(f"{where} is {shown(value)}; write a list [...]")
    return value


def text(value: object, where: str) -> str:
    """A word or sentence that can stand in a table: not empty, on one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise HarnessHeadsError(f'{where} is {shown(value)}; write a text in quotes on one line, as "..."')
    return value


def is_index(value: object) -> bool:
    """Whether it is a whole number >= 0: no float, no bool, no string."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: object) -> bool:
    """Whether it is a finite number: no bool, no NaN, no infinity, nothing that a float cannot hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def number(value: object, where: str) -> float:
    """A finite number."""
    if not is_number(value):
        raise HarnessHeadsError(f"{where} is {shown(value)}; write a finite number")
    assert isinstance(value, int | float)
    return value
