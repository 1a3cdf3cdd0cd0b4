"""Shipped head sets and the one way from what a user types to a head set that fits the loaded model.

Files lie in this folder, one set each; the slashes of a set's name are double underscores in its file name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from harness_heads.controls import facts_of
from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.heads import Geometry, HeadSet, ModelRef, load_head_set
from harness_heads.tiny import NAME as TINY
from harness_heads.tiny import WEIGHTS

FOLDER = Path(__file__).resolve().parent
TRANSFER = "transfer:"
"""Prefix of a spec that puts a set of another model with the same geometry onto this one."""

LISTING = "`harness-heads head-sets` lists those that are shipped; a file of your own ends in .json"
"""Where to look; their names alone would fill the screen."""

_DIGEST = re.compile(r"[0-9a-f]{8,64}")
_HUB_CACHE = re.compile(r"models--([^/]+?)--([^/]+)")  # hub cache folder: models--owner--name/snapshots/<revision>


@cache
def shipped() -> tuple[str, ...]:
    """Names of all shipped sets, sorted."""
    return tuple(sorted(path.stem.replace("__", "/") for path in FOLDER.glob("*.json")))


def shipped_path(name: str) -> Path:
    """File of a shipped set (it need not exist)."""
    return FOLDER / f"{name.replace('/', '__')}.json"


@cache
def _load_shipped(name: str) -> HeadSet:
    return load_head_set(shipped_path(name))


def resolve(spec: str, fits: Sequence[str] | None = None) -> HeadSet:
    """The head set that a spec names.

    Args:
        spec: a shipped name (``vrh/qwen3-vl-8b/refcoco``), a head-set file, or a discovery folder that holds one;
            ``@digest`` after it pins its content, ``transfer:`` before it asks for it on another model.
        fits: names to offer when the spec is unknown; by default all shipped names.

    Returns:
        The set; ``provenance["transfer"]`` is true where the spec asked for a transfer.

    Raises:
        HarnessHeadsError: unknown name (with the closest one), unreadable file, or a digest that does not fit.
    """
    body = spec.strip()
    transfer = body.startswith(TRANSFER)
    body = body.removeprefix(TRANSFER)
    if not body.strip():
        raise HarnessHeadsError(f"head set {spec!r} is empty; name one ({LISTING})")
    name, digest = _split_digest(body)
    head_set = _load(name, fits)
    if digest is not None and not head_set.identity.startswith(digest):
        raise HarnessHeadsError(
            f"head set {name!r} was edited since: it is {head_set.key} now, {digest} was asked for; "
            "restore the file, or drop the digest to take it as it is"
        )
    if transfer:
        head_set = replace(head_set, provenance={**head_set.provenance, "transfer": True})
    return head_set


def _split_digest(body: str) -> tuple[str, str | None]:
    name, at, tail = body.rpartition("@")
    if not at or body in shipped() or _exists(body):
        return body, None
    if not _DIGEST.fullmatch(tail):
        raise HarnessHeadsError(f"head set {body!r}: {tail!r} is no digest; give 8 to 64 hex digits after the @")
    return name, tail


def _load(name: str, fits: Sequence[str] | None) -> HeadSet:
    if name in shipped():
        return _load_shipped(name)
    if not _exists(name) and not name.endswith(".json"):
        hint = did_you_mean(name, shipped())
        if fits is None:
            raise HarnessHeadsError(f"unknown head set {name!r}{hint or '.'} {LISTING}")
        listed = ", ".join(fits) or "none fits this model; find one with `harness-heads discover`"
        raise HarnessHeadsError(f"unknown head set {name!r}{hint} (known: {listed})")
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / "head_set.json"
        if not path.exists():
            raise HarnessHeadsError(f"head set {name!r} is a folder without {path.name}; name a head-set file in it")
    head_set = load_head_set(path)
    facts_of(head_set, str(path))  # only some control families read them; a file is sound or refused as a whole
    return head_set


def _exists(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError):  # too long for a path; a home that is not known
        return False


def model_id(name_or_path: str) -> str:
    """The id under which head sets know a model, whatever the path that it was loaded from.

    The embedded model is ``tiny-digits``; a snapshot folder of the hub's cache and a local folder that bears the name
    of a model with shipped sets are their hub ids; everything else stays as it is.
    """
    text = str(name_or_path).rstrip("/")
    path = Path(text).expanduser()
    if text == TINY or (path.exists() and (path.resolve() == WEIGHTS or _calls_itself_tiny(path))):
        return TINY
    cached = _HUB_CACHE.search(text)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    if path.exists():
        for known in sorted({_load_shipped(name).model.id for name in shipped()}):
            if known.rsplit("/", 1)[-1].lower() == path.resolve().name.lower():
                return known
    return text


def _calls_itself_tiny(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return False
    return isinstance(config, dict) and TINY in (
        config.get("name"),
        config.get("model_name"),
        config.get("harness_heads"),
    )


def fitting(model: str, geometry: Geometry) -> list[str]:
    """Names of shipped sets made for a model (id or path) with this geometry."""
    wanted = model_id(model)
    return [
        name
        for name in shipped()
        if (s := _load_shipped(name)).model.id == wanted and s.geometry.heads == geometry.heads
    ]


def default_for(model: str) -> str:
    """The set that a run takes when none is named: the published RefCOCO set, or the embedded model's own.

    Raises:
        HarnessHeadsError: no set is shipped for the model; the message lists the models that have one.
    """
    wanted = model_id(model)
    if wanted == TINY:
        return f"{TINY}/dg-ref-qsp"
    mine = [name for name in shipped() if _load_shipped(name).model.id == wanted]
    for name in mine:
        if name.endswith("/refcoco"):
            return name
    if mine:
        return mine[0]
    models = sorted({_load_shipped(name).model.id for name in shipped()})
    raise HarnessHeadsError(
        f"no head set is shipped for {model}; name one with head_set=..., or find one with `harness-heads discover "
        f"--model {model}` (shipped sets are for: {', '.join(models)})"
    )


def check_model(head_set: HeadSet, model: ModelRef, geometry: Geometry) -> HeadSet:
    """The set as the loaded model takes it.

    A set of another model is refused. Two models of one backbone share their layer and head indices (paper B, Figure 7
    and Table A13): ``transfer:`` before the name asks for such a set, which then carries this model's id.

    Raises:
        HarnessHeadsError: another model without ``transfer:``, another geometry, or a head outside it.
    """
    own = model_id(head_set.model.id)
    wanted = model_id(model.id)
    transfer = bool(head_set.provenance.get("transfer"))
    fits = fitting(model.id, geometry)
    offer = f"sets that fit: {', '.join(fits)}" if fits else "find one with `harness-heads discover`"
    if own != wanted and not transfer:
        hint = f"; {TRANSFER}{head_set.name} would transfer it" if head_set.geometry.heads == geometry.heads else ""
        raise HarnessHeadsError(f"head set {head_set.name!r} was made for {own}, not for {wanted}{hint} ({offer})")
    if head_set.geometry.heads != geometry.heads:
        raise HarnessHeadsError(
            f"head set {head_set.name!r} is of a model with {_shape(head_set.geometry)}, "
            f"{wanted} has {_shape(geometry)} ({offer})"
        )
    provenance = dict(head_set.provenance)
    if own != wanted:
        provenance["transferred_from"] = own
        provenance.pop("facts", None)  # measured on the other model
    kv_known = geometry if geometry.kv_heads is not None else head_set.geometry
    return replace(head_set, model=model, geometry=kv_known, provenance=provenance)


def _shape(geometry: Geometry) -> str:
    """Layers and heads in words."""
    counts = sorted(set(geometry.heads))
    heads = f"{counts[0]} heads" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} heads"
    return f"{len(geometry.heads)} layers of {heads}"
