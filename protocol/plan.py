"""Plan and Claim: what a run is to show, fixed before it runs.

A plan is a small JSON file; its digest travels into the run, and claims are judged only against a plan whose digest
the run carries. A run without a plan is exploratory.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from harness_heads.errors import HarnessHeadsError, did_you_mean

SCHEMA = 1
KINDS = ("necessity", "steerability", "null", "silent", "difference")
TESTED = ("necessity", "steerability")
"""Kinds that a rank test decides: those that m counts."""
TAILS = ("upper", "lower", "two-sided")
STOPPING = ("fixed", "two-stage", "sequential")


@dataclass(frozen=True)
class Claim:
    """One sentence that the run is to carry.

    Attributes:
        kind: ``necessity`` (NCS above the controls), ``steerability`` (CERS above them), ``null`` (equivalent to the
            controls' mean within ``margin``), ``silent`` (score within ``margin`` of 0, or not above the controls: what
            a negative control is to show, weaker than ``null``), ``difference`` (``set`` above ``versus`` on the same
            items).
        set: name of the discovered set.  versus: the other set of a difference.
        task: task name.
        family: control family it is judged against.
        alpha: level after Holm.
        margin: least effect that counts; half-width of the region for ``null`` and ``silent`` (required
            there).
        score: score it speaks of; by default the first of the task's kind.
        condition: condition it speaks of, where the task has several.
    """

    kind: str
    set: str
    task: str
    family: str = "layer"
    alpha: float = 0.05
    margin: float | None = None
    versus: str | None = None
    score: str | None = None
    condition: str | None = None

    def problems(self, where: str) -> list[str]:
        """Everything that is wrong with the claim, one line each."""
        out = []
        if self.kind not in KINDS:
            out.append(f"{where}: unknown kind {self.kind!r}{did_you_mean(str(self.kind), KINDS)}")
        if not _is_level(self.alpha):
            out.append(f"{where}: alpha={self.alpha!r} must lie between 0 and 1")
        if self.margin is not None and not (_is_number(self.margin) and self.margin > 0):
            out.append(f"{where}: margin={self.margin!r} must be a finite number above 0")
        if self.kind in ("null", "silent") and self.margin is None:
            out.append(f"{where}: a {self.kind} claim needs a margin; without one, absence cannot be shown")
        if self.kind == "difference" and not self.versus:
            out.append(f"{where}: a difference needs 'versus', the set it is compared with")
        for name in ("set", "task", "family"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                out.append(f"{where}: {name} must be a name")
        return out


@dataclass(frozen=True)
class Plan:
    """What is fixed before a run.

    Attributes:
        claims: what the run is to show.
        settings: model arguments, free JSON.
        sets: names of the head sets.
        tasks: names of the tasks.
        k: heads per set.  n: items per task.  r: control sets per set and family.
        families: control families.
        alpha, tails: level and tail of the tests.
        m: how many tests are made in all, scans over k, beta and rows included.
        stopping: ``fixed`` R, ``two-stage`` (``first`` draws, all ``r`` if none exceeds) or ``sequential``.
        first: draws of the first stage; for ``sequential`` the number of exceedances that ends the drawing.
        negative_controls: sets that are expected to show nothing.
        declared: protocol items that no evidence can show (17, 19), by number.
        tuned_on: split or corpus that k, beta and rows were chosen on; ``None`` where nothing was tuned.
    """

    claims: tuple[Claim, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    sets: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    k: int | None = None
    n: int | None = None
    r: int | None = None
    families: tuple[str, ...] = ("layer",)
    alpha: float = 0.05
    tails: str = "upper"
    m: int = 1
    stopping: str = "fixed"
    first: int = 20
    negative_controls: tuple[str, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)
    tuned_on: str | None = None
    note: str = ""

    def __post_init__(self) -> None:
        problems = self.problems()
        if problems:
            raise HarnessHeadsError("plan: " + "; ".join(problems))

    def problems(self) -> list[str]:
        """Everything that is wrong, collected, so that one reading mends all."""
        out = []
        for name in ("k", "n", "r", "m", "first"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                out.append(f"{name}={value!r} must be a whole number of at least 1")
        if not _is_level(self.alpha):
            out.append(f"alpha={self.alpha!r} must lie between 0 and 1")
        if self.tails not in TAILS:
            out.append(f"unknown tails {self.tails!r}{did_you_mean(str(self.tails), TAILS)}")
        if self.stopping not in STOPPING:
            out.append(f"unknown stopping rule {self.stopping!r}{did_you_mean(str(self.stopping), STOPPING)}")
        for number, claim in enumerate(self.claims, 1):
            out += claim.problems(f"claim {number}")
        tested = sum(claim.kind in TESTED for claim in self.claims)
        if isinstance(self.m, int) and tested > self.m:
            out.append(f"m={self.m} tests are declared for {tested} necessity and steerability claims")
        return out

    @property
    def digest(self) -> str:
        """SHA-256 of the plan's canonical JSON (64 hex digits): spacing and key order do not matter."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value; :func:`plan_from_dict` reads it back."""
        value = asdict(self)
        for name in ("sets", "tasks", "families", "negative_controls"):
            value[name] = list(value[name])
        value["claims"] = [{k: v for k, v in asdict(claim).items() if v is not None} for claim in self.claims]
        return {"schema": SCHEMA, **value}

    def save(self, path: Path) -> None:
        """Write the plan file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def plan_from_dict(value: Any, source: str) -> Plan:
    """Read what :meth:`Plan.to_dict` wrote.

    Raises:
        HarnessHeadsError: naming ``source`` and everything that is wrong, unknown keys included.
    """
    if not isinstance(value, Mapping):
        raise HarnessHeadsError(f"{source}: a plan is a JSON object, this is a {type(value).__name__}")
    if value.get("schema") != SCHEMA:
        raise HarnessHeadsError(
            f"{source}: plan schema {value.get('schema')!r} is unknown, this version reads {SCHEMA}"
        )
    known = [f.name for f in fields(Plan)]
    rest = {k: v for k, v in value.items() if k != "schema"}
    for key in rest:
        if key not in known:
            raise HarnessHeadsError(f"{source}: plan has no field {key!r}{did_you_mean(key, known)}")
    claims = rest.pop("claims", [])
    if not isinstance(claims, list):
        raise HarnessHeadsError(f"{source}: claims must be a list")
    read = tuple(_claim(claim, f"{source}: claim {i}") for i, claim in enumerate(claims, 1))
    for name in ("sets", "tasks", "families", "negative_controls"):
        if name in rest:
            if not isinstance(rest[name], list) or not all(isinstance(v, str) for v in rest[name]):
                raise HarnessHeadsError(f"{source}: {name} must be a list of names")
            rest[name] = tuple(rest[name])
    for name in ("settings", "declared"):
        if name in rest and not isinstance(rest[name], Mapping):
            raise HarnessHeadsError(f"{source}: {name} must be a JSON object")
    try:
        return Plan(claims=read, **rest)
    except HarnessHeadsError as error:
        raise HarnessHeadsError(f"{source}: {error}") from None


def load_plan(path: Path) -> Plan:
    """Read a plan file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise HarnessHeadsError(f"plan file {path} does not exist") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HarnessHeadsError(f"plan file {path} is not JSON: {error}") from error
    except OSError as error:
        raise HarnessHeadsError(f"plan file {path} cannot be read: {error.strerror}") from error
    return plan_from_dict(value, str(path))


def _claim(value: Any, where: str) -> Claim:
    if not isinstance(value, Mapping):
        raise HarnessHeadsError(f"{where} is no JSON object")
    known = [f.name for f in fields(Claim)]
    for key in value:
        if key not in known:
            raise HarnessHeadsError(f"{where} has no field {key!r}{did_you_mean(key, known)}")
    for required in ("kind", "set", "task"):
        if required not in value:
            raise HarnessHeadsError(f"{where} needs {required!r}")
    return Claim(**value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_level(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1
