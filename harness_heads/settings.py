"""Settings: the one list of our model_args; docs, run.json and error messages come from it.

``lmms_eval --model_args a=1,b=x+y`` hands over values that lmms-eval has already turned into numbers where it could;
lists are written with ``+`` because the comma separates arguments. Whatever is not ours is the host's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness_heads.conditions import ABLATIONS, NUMERICS, PHASES, ROW_GROUPS, Beta, Op
from harness_heads.errors import HarnessHeadsError, did_you_mean

DEFAULT_MODEL = "Qwen/Qwen3-VL-8B-Instruct"
DEFAULT_CONTROLS = 20
UNTOUCHED = "none"
"""The ``head_set`` of a run that leaves the host as it is."""
ACTS_UNDER: Mapping[str, Op] = {
    "beta": "steer",
    "numerics": "steer",
    "box": "steer",
    "keep_self": "mask",
    "ablation": "ablate",
}
"""Settings that one operation alone reads."""
POOLED_FAMILIES = ("layer", "any", "kv_group")
"""Control families whose pool may hold the set's own heads, so that ``exclude_set`` can leave them out."""
CONTROL_FAMILIES = ("layer", "any", "attention", "low_score", "disjoint", "kv_group", "damage")


@dataclass(frozen=True)
class Settings:
    """What our model classes take beside the host's own arguments.

    Empty tuples mean "as the probe says". Every field is documented in :data:`HELP`.
    """

    head_set: tuple[str, ...] = ()
    top_k: tuple[int, ...] = ()
    controls: int = DEFAULT_CONTROLS
    control_family: tuple[str, ...] = ("layer",)
    control_seed: int = 0
    exclude_set: bool = False
    rows: tuple[tuple[str, ...], ...] = ()
    beta: tuple[Beta, ...] = ()
    phase: str = "both"
    keep_self: bool = False
    numerics: str = "float32"
    ablation: str = "zero"
    box: tuple[float, float, float, float] | None = None
    plan: str | None = None
    verify: bool = True
    condition_batch: int | None = None
    journal: str | None = None

    def __post_init__(self) -> None:
        for name in _LISTS:
            value = getattr(self, name)
            if isinstance(value, str):
                raise HarnessHeadsError(f"{name}={value!r}: give a sequence, ({value!r},); a text is read by letters")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value for ``run.json``, all defaults filled in."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "head_set": list(self.head_set),
            "top_k": list(self.top_k),
            "control_family": list(self.control_family),
            "rows": ["+".join(scope) for scope in self.rows],
            "beta": list(self.beta),
            "box": None if self.box is None else list(self.box),
            # where a file lay says nothing about the run; its digest is recorded beside it
            "plan": None if self.plan is None else Path(self.plan).name,
            "journal": None if self.journal is None else Path(self.journal).name,
        }


HELP: Mapping[str, str] = {
    "head_set": "shipped name, file, or name@digest; several joined by + share one baseline; none: the host untouched",
    "top_k": "cut every set to its first k heads; several (20+40) make a sweep",
    "controls": "number of random control sets per set and family",
    "control_family": f"how controls are drawn, joined by +: {', '.join(CONTROL_FAMILIES)}",
    "control_seed": "seed of the control draws",
    "exclude_set": "draw controls outside the set (default False: the exact null draws from all heads)",
    "rows": f"query rows acted on: all, or groups joined by - ({', '.join(ROW_GROUPS)}); several scopes joined by +",
    "beta": "steering strengths joined by +: finite numbers or hard (the exact limit)",
    "phase": f"when to act: {', '.join(PHASES)}",
    "keep_self": "a masked image row keeps its own key",
    "numerics": f"arithmetic of steering: {', '.join(NUMERICS)}",
    "ablation": f"what ablating a head means: {', '.join(ABLATIONS)}",
    "box": "x0-y0-x1-y1 in 0..1000 of the image: where to steer on tasks without a probe",
    "plan": "plan file (JSON) written before the run; without one the run is exploratory",
    "verify": "prove the intervention on the loaded model before scoring",
    "condition_batch": "conditions x sets answered together (memory against speed)",
    "journal": "file of answered requests; set by the launcher, a second run with it resumes",
}
"""One line per model_arg: the README table, ``harness-heads settings`` and error messages print it."""


def split_model_args(kwargs: Mapping[str, Any], host_args: Iterable[str]) -> tuple[Settings, dict[str, Any]]:
    """Split model_args into ours, parsed, and the host's, untouched.

    Raises:
        HarnessHeadsError: listing *every* unknown or ill-formed argument at once.
    """
    ours = {f.name for f in fields(Settings)}
    host = set(host_args)
    problems: list[str] = []
    values: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in kwargs.items():
        if isinstance(value, str) and not value.strip() and name in ours | host:
            problems.append(f"{name}= is empty; give it a value, or leave it out")
        elif name in ours:
            try:
                values[name] = _distinct(_PARSERS[name](value)) if name in _LISTS else _PARSERS[name](value)
            except (ValueError, TypeError, OverflowError) as error:
                # lmms-eval hands over "-1" as -1.0; say what was typed
                shown = int(value) if isinstance(value, float) and value.is_integer() else value
                problems.append(f"{name}={shown}: {error}")
        elif name in host:
            rest[name] = value
        else:
            problems.append(f"unknown model_arg {name!r}{did_you_mean(name, ours | host)}")
    if problems:
        raise HarnessHeadsError("model_args: " + "; ".join(problems))
    return Settings(**values), rest


def check_op(settings: Settings, op: Op) -> None:
    """Refuse settings that nothing would read: what has no effect is not what was asked for.

    Raises:
        HarnessHeadsError: listing *every* setting that ``op``, or the control families, take no notice of.
    """
    defaults = Settings()
    problems = [
        f"{name}= does nothing under {op}, only {reader} reads it; leave it out"
        for name, reader in ACTS_UNDER.items()
        if op != reader and getattr(settings, name) != getattr(defaults, name)
    ]
    if settings.exclude_set and not set(settings.control_family) & set(POOLED_FAMILIES):
        families = "+".join(settings.control_family)
        problems.append(f"exclude_set= does nothing to control_family={families}; leave it out")
    if problems:
        raise HarnessHeadsError("model_args: " + "; ".join(problems))


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A sweep names each value once."""
    kinds = [tuple(sorted(v)) if isinstance(v, tuple) else v for v in values]  # a-b and b-a are one row scope
    for index, kind in enumerate(kinds):
        if kind in kinds[:index]:
            raise ValueError(f"{'-'.join(kind) if isinstance(kind, tuple) else kind} is named twice; name it once")
    return values


def _parts(value: object) -> list[str]:
    parts = [part.strip() for part in str(value).split("+")]
    if not all(parts):
        raise ValueError("an element between two + is empty")
    return parts


def _whole(value: object) -> int:
    text = str(value).removesuffix(".0")  # lmms-eval makes a float of "-1"
    if isinstance(value, bool) or not text.removeprefix("-").isdecimal():
        raise ValueError(f"{value!r} is no whole number")
    number = int(text)
    if number < 0:
        raise ValueError("must be 0 or more")
    return number


def _positive(value: object) -> int:
    number = _whole(value)
    if number < 1:
        raise ValueError("must be 1 or more")
    return number


def _flag(value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError("write True or False")
    return text in ("true", "1", "yes")


def _one_of(known: Iterable[str]) -> Callable[[object], str]:
    options = tuple(known)

    def parse(value: object) -> str:
        if str(value) not in options:
            raise ValueError(f"unknown{did_you_mean(str(value), options)} (known: {', '.join(options)})")
        return str(value)

    return parse


def _counts(value: object) -> tuple[int, ...]:
    # lmms-eval has already made a float of "8.0"; a sweep stays a string
    numbers = tuple(_whole(v) for v in (_parts(value) if isinstance(value, str) else [value]))
    if 0 in numbers:
        raise ValueError("k must be 1 or more")
    return numbers


def _betas(value: object) -> tuple[Beta, ...]:
    out: list[Beta] = []
    for part in _parts(value):
        if part == "hard":
            out.append("hard")
            continue
        try:
            beta = float(part)
        except ValueError:
            beta = math.nan
        if not math.isfinite(beta):
            raise ValueError(f"{part} is neither a finite number nor the word hard")
        if beta == 0:
            raise ValueError("0 moves no attention; give another strength")
        out.append(beta)
    return tuple(out)


def _scopes(value: object) -> tuple[tuple[str, ...], ...]:
    group = _one_of(("all", *ROW_GROUPS))
    scopes = tuple(tuple(group(part) for part in scope.split("-")) for scope in _parts(value))
    for scope in scopes:
        if len(set(scope)) < len(scope):
            raise ValueError(f"{'-'.join(scope)} names a group twice")
        if "all" in scope and len(scope) > 1:
            raise ValueError(f"{'-'.join(scope)} mixes all with groups; write one of them")
    return scopes


def _families(value: object) -> tuple[str, ...]:
    family = _one_of(CONTROL_FAMILIES)
    return tuple(family(part) for part in _parts(value))


def _box(value: object) -> tuple[float, float, float, float]:
    parts = str(value).split("-")
    numbers = [float(part) for part in parts] if all(map(_NUMERAL.fullmatch, parts)) else []
    if len(numbers) != 4 or not (0 <= numbers[0] < numbers[2] <= 1000 and 0 <= numbers[1] < numbers[3] <= 1000):
        raise ValueError("write x0-y0-x1-y1 with 0 <= x0 < x1 <= 1000 and 0 <= y0 < y1 <= 1000")
    return (numbers[0], numbers[1], numbers[2], numbers[3])


_LISTS = ("head_set", "top_k", "control_family", "rows", "beta")
"""Settings that hold a sweep: several values joined by +."""
_NUMERAL = re.compile(r"\d+(?:\.\d+)?")
_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "head_set": lambda value: tuple(_parts(value)),
    "top_k": _counts,
    "controls": _whole,
    "control_family": _families,
    "control_seed": _whole,
    "exclude_set": _flag,
    "rows": _scopes,
    "beta": _betas,
    "phase": _one_of(PHASES),
    "keep_self": _flag,
    "numerics": _one_of(NUMERICS),
    "ablation": _one_of(ABLATIONS),
    "box": _box,
    "plan": str,
    "verify": _flag,
    "condition_batch": _positive,
    "journal": str,
}
