"""Recipe: how items are built from rows; and the options a YAML may set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.tasks.items import Item
from harness_heads.tasks.sources import Source
from harness_heads.tasks.spec import TaskSpec


@dataclass(frozen=True)
class Option:
    """One option of a recipe.

    Attributes:
        default: its value where the YAML is silent; its type is the option's type.
        help: one line for the docs.
        choices: allowed values, none for any.
    """

    default: Any
    help: str
    choices: tuple[Any, ...] = ()

    def problems(self, name: str, value: Any) -> list[str]:
        """What is wrong with a value, in words."""
        if self.choices:
            if value in self.choices:
                return []
            hint = did_you_mean(str(value), map(str, self.choices))
            return [f"options.{name}: unknown value {value!r}{hint} (known: {', '.join(map(str, self.choices))})"]
        kind = type(self.default)
        if kind in (bool, int) and type(value) is not kind:
            return [f"options.{name}: {value!r} is no {'yes or no' if kind is bool else 'whole number'}"]
        if kind in (str, list) and not isinstance(value, kind):
            return [f"options.{name}: {value!r} is no {'text' if kind is str else 'list'}"]
        return []


def _no_check(options: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Most recipes have no rule over several keys."""


@dataclass(frozen=True)
class Recipe:
    """One way to build items.

    Attributes:
        name: what a YAML says under ``recipe``.
        version: raised whenever the same YAML builds other items; it is part of every item id.
        build: rows -> items, in order, balanced.
        required, optional: column role -> what it holds.
        options: option name -> its default and meaning.
        max_new_tokens: how long a stock model may answer.
        check: raises where keys contradict each other.
    """

    name: str
    version: int
    build: Callable[[TaskSpec, Source], list[Item]]
    required: Mapping[str, str]
    optional: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    max_new_tokens: int = 16
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], None] = _no_check

    @property
    def columns(self) -> tuple[str, ...]:
        """Every role that a YAML may map."""
        return (*self.required, *self.optional)

    def option(self, spec: TaskSpec, name: str) -> Any:
        """The YAML's value of an option, or its default."""
        return spec.options.get(name, self.options[name].default)


def enough(found: int, spec: TaskSpec, what: str) -> None:
    """Raise unless ``found`` items could be built: a task never shrinks silently."""
    if found < spec.n:
        raise HarnessHeadsError(
            f"{spec.task}: {spec.n} items are planned, {spec.data.label} gives {found} {what}; "
            "lower n or give more rows"
        )
