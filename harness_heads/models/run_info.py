"""What a run was: the value of ``run.json`` and of ``ProbeResult.run``, and the fingerprint of its journal."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness_heads.attention import quantisation
from harness_heads.conditions import Condition, Op
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import ModelRef, SetTable
from harness_heads.models.hosts import Host
from harness_heads.plain import mapping, read_json
from harness_heads.settings import Settings
from harness_heads.weights import spread_digest, weights_digest

SCHEMA = 1
RUN_FILE = "run.json"
RUN_FOLDER_VARIABLE = "HARNESS_HEADS_RUN"
"""Set by the launcher: where ``run.json`` and ``journal.jsonl`` go."""
_ANSWER_CODE = ("attention", "reading", "engine", "interventions", "layouts", "families", "conditions", "regions")


def run_folder() -> Path | None:
    """The run folder, ``None`` when the model class is used without the launcher."""
    value = os.environ.get(RUN_FOLDER_VARIABLE)
    return Path(value) if value else None


def code_version() -> str:
    """Digest (12 hex digits) of the modules that decide an answer: a journal of other code is not reused."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).parts[0].removesuffix(".py")
        if name in _ANSWER_CODE or name.startswith("engine"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def fingerprint(reference: ModelRef, model: Any, sets: SetTable, settings: Settings, op: Op) -> dict[str, Any]:
    """Everything that all answers of a run share; part of every journal key."""
    return {
        "model": [reference.id, reference.revision, weights_digest(model), spread_digest(model)],
        "dtype": str(model.dtype),
        "sets": [entry.key for entry in sets],
        "op": op,
        "settings": {k: v for k, v in settings.to_dict().items() if k not in ("journal", "plan", "verify")},
        "code": code_version(),
    }


def run_information(
    reference: ModelRef,
    model: Any,
    host: Host,
    family: Any,
    sets: SetTable,
    conditions: Sequence[Condition],
    settings: Settings,
    op: Op,
    engine: Any,
) -> dict[str, Any]:
    """The whole of ``run.json`` that the model side knows; plain JSON."""
    discovered = {e.key: e.heads.to_dict() for e in sets if e.role in ("discovered", "subset")}
    geometry = family.geometry(model)
    proof = engine.proof
    return {
        "schema": SCHEMA,
        "settings": settings.to_dict(),
        "model": {
            "id": reference.id,
            "revision": reference.revision,
            "weights": weights_digest(model),
            "dtype": str(model.dtype).removeprefix("torch."),
            "attention": engine.kernel,
            "host": host.model_id,
            "family": family.name,
            "quantisation": quantisation(model) or None,
            "geometry": {"heads": list(geometry.heads), "kv_heads": list(geometry.kv_heads or ())},
        },
        "sets": sets.to_list(),
        "sources": discovered,
        "conditions": [condition.to_dict() for condition in conditions],
        "op": op,
        "versions": versions(),
        "plan": plan_digest(settings),
        "seed": settings.control_seed,
        "proof": None if proof is None else proof.to_dict(),
    }


def plan_digest(settings: Settings) -> str | None:
    """SHA-256 of the plan file as it was when the run began."""
    if settings.plan is None:
        return None
    from harness_heads.protocol.plan import load_plan

    return load_plan(Path(settings.plan)).digest


def versions() -> dict[str, str]:
    """Versions of what decides a number, and the digest of our own answering code."""
    out = {"code": code_version()}
    for package in ("harness-heads", "lmms-eval", "transformers", "torch", "datasets", "numpy"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out


def read_run_file(folder: Path) -> dict[str, Any] | None:
    """``run.json`` of a run folder, ``None`` where there is none yet.

    Raises:
        HarnessHeadsError: it is cut, empty or not ours. It is never overwritten, and no answer depends on it.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return None
    kinds = {"schema": int, "settings": dict, "sets": list, "conditions": list}
    kinds_if_there = {"tasks": list, "expected_items": dict}
    try:
        value = mapping(read_json(path, "run file"), f"run file {path}")
        for key, kind in kinds.items():
            if not isinstance(value.get(key), kind):
                raise HarnessHeadsError(f"run file {path} has no sound {key!r}, so no run of ours wrote it")
        for key, kind in kinds_if_there.items():
            if not isinstance(value.get(key, kind()), kind):
                raise HarnessHeadsError(f"run file {path} has no sound {key!r}")
    except HarnessHeadsError as error:
        raise HarnessHeadsError(
            f"{error}; move that file away and give the same command again: what was answered is kept in its journal"
        ) from error
    return value


def write_run_file(
    folder: Path, information: Mapping[str, Any], tasks: Sequence[str], plan: Path | None = None
) -> None:
    """Write ``run.json``; a second model call of the same run adds its tasks and conditions.

    Raises:
        HarnessHeadsError: what is there already cannot be read.
    """
    value = dict(information)
    value["tasks"] = list(tasks)
    before = read_run_file(folder)
    if before is not None and before["sets"] == value["sets"] and before["settings"] == value["settings"]:
        value["tasks"] = sorted({*before.get("tasks", []), *tasks})
        value["expected_items"] = before.get("expected_items", {})
        value["conditions"] = list(
            {json.dumps(c, sort_keys=True): c for c in [*before["conditions"], *value["conditions"]]}.values()
        )
    if plan is not None and plan.resolve() != (folder / "plan.json").resolve():
        # the run carries its digest; evidence needs the claims themselves beside it
        _write(folder / "plan.json", plan.read_bytes())
    _store(folder / RUN_FILE, value)


def write_expected(folder: Path, counts: Mapping[str, int]) -> None:
    """Add to ``run.json`` how many items each task was to answer; without that file (stock models) nothing is done."""
    value = read_run_file(folder)
    if value is not None:
        _store(folder / RUN_FILE, {**value, "expected_items": {**value.get("expected_items", {}), **counts}})


def _store(path: Path, value: Mapping[str, Any]) -> None:
    _write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise HarnessHeadsError(
            f"run file {path} cannot be written ({error.strerror}); free the folder and give the same command again"
        ) from error
