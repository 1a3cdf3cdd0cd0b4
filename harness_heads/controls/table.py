"""The table of every head set of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from harness_heads.controls.draws import draw_controls
from harness_heads.controls.facts import HeadFacts
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, HeadSet, ModelRef, SetEntry, SetTable, empty_set
from harness_heads.settings import UNTOUCHED, Settings


def set_table(
    discovered: Sequence[HeadSet],
    settings: Settings,
    model: ModelRef,
    geometry: Geometry,
    facts: HeadFacts | None = None,
) -> SetTable:
    """Every set of a run: the empty set, the discovered sets (cut by ``top_k``), their controls and their damage sets.

    Args:
        discovered: sets found on this model, or transferred to it by :func:`harness_heads.head_sets.check_model`.
        settings: ``top_k``, ``controls``, ``control_family``, ``control_seed`` and ``exclude_set`` are read.
        model, geometry: of the loaded model; the empty set and the identity digests carry them.
        facts: measures of every head; by default those in each set's provenance.

    Returns:
        The table: empty, discovered or subset, then each set's controls, family by family in draw order. A set that
        ``top_k`` cuts has the role ``subset`` and the uncut set's key as parent.

    Raises:
        HarnessHeadsError: a set of another model or geometry, two names for the same heads, two sets of
            one name, or what
            :func:`draw_controls` raises.
    """
    entries = [SetEntry("empty", empty_set(model, geometry))]
    for head_set in discovered:
        if head_set.model.id != model.id or head_set.geometry.heads != geometry.heads:
            raise HarnessHeadsError(
                f"head set {head_set.name!r} is of {head_set.model.id}, the run is of {model.id}; see check_model"
            )
        if head_set.geometry.kv_heads is None and geometry.kv_heads is not None:
            head_set = replace(head_set, geometry=geometry)
        if not settings.top_k:
            entries.append(SetEntry("discovered", head_set))
        for k in settings.top_k:
            cut = head_set.top(k)
            whole = cut is head_set
            entries.append(SetEntry("discovered", cut) if whole else SetEntry("subset", cut, parent=head_set.key))
    _check_distinct(entries)
    controls: list[SetEntry] = []
    for entry in entries[1:]:
        for family in settings.control_family if settings.controls else ():
            drawn = draw_controls(
                entry.heads,
                family,
                settings.controls,
                settings.control_seed,
                exclude_set=settings.exclude_set,
                facts=facts,
            )
            role = "damage" if family == "damage" else "control"
            controls += [
                SetEntry(role, heads, family, entry.key, draw, settings.control_seed)
                for draw, heads in enumerate(drawn)
            ]
    _check_names([*entries, *controls])
    return SetTable((*entries, *controls))


def _check_distinct(entries: Sequence[SetEntry]) -> None:
    seen: dict[str, str] = {}
    for entry in entries[1:]:
        if not entry.heads.heads:
            raise HarnessHeadsError(
                f"head set {entry.heads.name!r} is empty; the baseline is there already (alone: head_set={UNTOUCHED})"
            )
        if entry.key in seen:
            raise HarnessHeadsError(
                f"head_set: {seen[entry.key]!r} and {entry.heads.name!r} are the same heads; name them once"
            )
        seen[entry.key] = entry.heads.name


def _check_names(entries: Sequence[SetEntry]) -> None:
    """Rows of tables and reports are told apart by the names of their sets: one of two would silently be dropped."""
    for name, count in Counter(entry.heads.name for entry in entries).items():
        if count > 1:
            raise HarnessHeadsError(
                f"head_set: {count} sets of this run are called {name!r}, and rows are told apart by name; "
                'change the "name" inside the head-set file of one'
            )
