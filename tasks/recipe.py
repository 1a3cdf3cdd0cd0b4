"""Recipe: how items are built from rows; and the options a YAML may set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.plain import shown
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
        low: smallest whole number.
    """

    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    low: int = 0

    def problems(self, name: str, value: Any) -> list[str]:
        """What is wrong with a value, in words."""
        if self.choices:
            # True is 1 to Python, and no choice of ours
            if any(value == choice and type(value) is type(choice) for choice in self.choices):
                return []
            hint = did_you_mean(str(value), map(str, self.choices))
            return [f"options.{name}: unknown value {shown(value)}{hint} (known: {', '.join(map(str, self.choices))})"]
        kind = type(self.default)
        if kind in (bool, int) and type(value) is not kind:
            return [f"options.{name}: {shown(value)} is no {'yes or no' if kind is bool else 'whole number'}"]
        if kind is int and value < self.low:
            return [f"options.{name}: {shown(value)} is too small; write {self.low} or more"]
        if kind in (str, list) and not isinstance(value, kind):
            return [f"options.{name}: {shown(value)} is no {'text' if kind is str else 'list'}"]
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
        fields: template (``question``, or an option) -> the placeholders that it holds, each of them and no other.
        max_new_tokens: how long a stock model may answer.
        check: raises where keys contradict each other.
    """

    name: str
    version: int
    build: Callable[[TaskSpec, Source], list[Item]]
    required: Mapping[str, str]
    optional: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_new_tokens: int = 16
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], None] = _no_check

    @property
    def columns(self) -> tuple[str, ...]:
        """Every role that a YAML may map."""
        return (*self.required, *self.optional)

    def option(self, spec: TaskSpec, name: str) -> Any:
        """The YAML's value of an option, or its default."""
        return spec.options.get(name, self.options[name].default)


REUSE = 10
"""How many items a task may plan for each row of its data."""


def within_reach(spec: TaskSpec, source: Source) -> None:
    """Raise where a plan lies far beyond the data, before hours are spent on building it."""
    if spec.n > REUSE * len(source):
        raise HarnessHeadsError(
            f"{spec.task}: {spec.n} items are planned, {source.label} has {len(source)} rows; "
            f"lower n to {max(1, REUSE * len(source))} or less, or give more rows"
        )


def needs_question(config: Mapping[str, Any]) -> None:
    """Raise where a recipe whose rows bring no question is given none."""
    if not str(config.get("question") or "").strip():
        raise HarnessHeadsError(
            "key 'question' is missing: what is asked about the images? Rows bring no question here"
        )


def enough(found: int, spec: TaskSpec, what: str) -> None:
    """Raise unless ``found`` items could be built: a task never shrinks silently."""
    if found < spec.n:
        raise HarnessHeadsError(
            f"{spec.task}: {spec.n} items are planned, {spec.data.label} gives {found} {what}; "
            "lower n or give more rows"
        )
