"""Files that were cut off or edited: whatever reading them raises becomes one sentence that names file and item."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

from harness_heads.errors import HarnessHeadsError

WHAT_MENDS = "it was cut off or edited; restore it or run again"
_NAMES: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    list: "a list",
    tuple: "a list",
    Mapping: "a JSON object",
    NoneType: "null",
}


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Guards the reading of a parsed JSON value.

    Args:
        what: file and item, the beginning of the error's sentence.

    Raises:
        HarnessHeadsError: for every way in which a value of another type or without a key fails to be read.
    """
    try:
        yield
    except HarnessHeadsError:
        raise
    except KeyError as error:
        raise HarnessHeadsError(f"{what} has no {error}: {WHAT_MENDS}") from error
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise HarnessHeadsError(f"{what} cannot be read ({error}): {WHAT_MENDS}") from error


def check_fields(value: Mapping[Any, Any], shapes: Mapping[Any, tuple[type, ...]], where: str) -> None:
    """Hold a JSON object to the types of its fields.

    Args:
        shapes: field -> types; a field that may be missing or null lists ``NoneType``.
        where: file and item, the beginning of the error's sentence.

    Raises:
        HarnessHeadsError: naming the first field that is missing or of another type.
    """
    for name, types in shapes.items():
        held = value.get(name)
        if name not in value and NoneType not in types:
            raise HarnessHeadsError(f"{where} has no {name!r}: {WHAT_MENDS}")
        # JSON's true is an int to Python
        if not isinstance(held, types) or isinstance(held, bool):
            wanted = " or ".join(dict.fromkeys(_NAMES[kind] for kind in types))
            raise HarnessHeadsError(f"{where}: {name!r} is {_brief(held)}, it must be {wanted}: {WHAT_MENDS}")


def _brief(value: object) -> str:
    """A JSON value in at most 40 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def json_object(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object.

    Raises:
        HarnessHeadsError: a file that cannot be opened, is no JSON or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HarnessHeadsError(f"{path} cannot be read: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HarnessHeadsError(f"{path} is not JSON ({error}): {WHAT_MENDS}") from error
    if not isinstance(value, dict):
        raise HarnessHeadsError(f"{path} holds no JSON object: {WHAT_MENDS}")
    return value
