"""Pitfall rules on data and intervention: leaking images, nested items, floors, doses, set sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from harness_heads.protocol import statistics as st
from harness_heads.protocol.analysis import Analysis, TaskAnalysis, Test, of_contrast
from harness_heads.protocol.effects import control_keys
from harness_heads.protocol.findings import Finding
from harness_heads.protocol.formats import counted
from harness_heads.protocol.pitfalls import _find, place

LARGEST_SHARE = 0.09
"""k above this share of all heads makes sets and controls overlap by necessity (100 of 1,152 is 8.7 %)."""
NO_MOVE = 1e-6


def shared_images(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        both = discovery_images(a, t) & evaluation_images(a.task_of(t))
        split = discovery_split(a, t)
        if both:
            text = f"{counted(len(both), 'image')} used for discovery and for evaluation; use disjoint images"
            yield _find("shared-images", t, text, True)
        elif split is not None and split in ("evaluate", "evaluation"):
            text = f"the set was discovered on split {split!r}, which the evaluation uses"
            yield _find("shared-images", t, text, True)


def nested_items(a: Analysis) -> Iterator[Finding]:
    for task in a.tasks:
        seen: dict[str, set[str]] = {}
        for detail, cluster in zip(task.evidence.details, task.evidence.clusters, strict=True):
            for image in main_images(detail):
                seen.setdefault(image, set()).add(cluster)
        split = {image: clusters for image, clusters in seen.items() if len(clusters) > 1}
        if split:
            ids = tuple(t.id for t in a.tests if a.task_of(t) is task)
            text = (
                f"{counted(len(split), 'image')} in items of different clusters: nested items are treated as "
                "independent; the task must name the image as the cluster"
            )
            yield Finding("nested-items", task.evidence.task, text, True, ids)


def large_k(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        run = a.evidence.runs[t.run]
        entry = next(e for e in run.tested if e.key == t.effect.key)
        share = t.effect.k / run.geometry.total
        if share > LARGEST_SHARE and entry.role == "discovered":
            text = (
                f"k = {t.effect.k} is {share:.1%} of the {run.geometry.total} heads (at most {LARGEST_SHARE:.0%}): "
                "any set of that size covers much of the model"
            )
            yield _find("large-k", t, text, True)


def floor_bound_arm(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        if t.effect.score != "ncs":
            continue
        task = a.task_of(t)
        level = next((x for x in task.levels if x.arm == "mismatched"), None)
        drop = task.effect("drop_mismatched", t.effect.condition, t.effect.key, t.effect.family)
        if level is None or drop is None:
            continue
        chance = 1 / len(level.letters)
        if level.p < chance and drop.mean < 0 and -drop.mean > 0.1 * abs(t.effect.mean):
            text = (
                f"the mismatched arm starts at {level.p:.3f}, below chance, and rises by {-drop.mean:.3f} when masked: "
                f"flattening adds that to NCS = {t.effect.mean:.3f}; read the matched drop, NCS-v2 or the grid contrast"
            )
            yield _find("floor-bound-arm", t, text, False)


def audit_out_of_range(a: Analysis) -> Iterator[Finding]:
    for task in a.tasks:
        ids = tuple(t.id for t in a.tests if a.task_of(t) is task)
        for audit in task.audits:
            if not audit.passed:
                text = (
                    f"arm {audit.arm}: P(c) = {audit.p:.3f} without intervention, expected {audit.expected} "
                    f"({audit.why})"
                )
                yield Finding("audit-out-of-range", audit.task, text, True, ids)


def steering_without_dose(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        if t.effect.condition.startswith("steer") and math.isnan(t.mass_after):
            text = "steering without the attention mass that it reached; doses of set and controls cannot be compared"
            yield _find("steering-without-dose", t, text, True)


def could_not_act(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        if math.isnan(t.mass_before) or t.effect.condition.startswith("ablate"):
            continue
        if abs(t.mass_after - t.mass_before) < NO_MOVE:
            text = f"the attention mass stayed at {t.mass_before:.4f}: the intervention did not act"
            yield _find("could-not-act", t, text, True)


def unmatched_dose(a: Analysis) -> Iterator[Finding]:
    for t in a.leading:
        if not t.effect.condition.startswith("steer") or math.isnan(t.mass_after):
            continue
        own, null = t.mass_after, t.control_mass_after
        if null > 0 and own / null > 1.25:
            text = f"steering moved the set to {own:.3f} mass on the target and its controls to {null:.3f} only"
            yield _find("unmatched-dose", t, text, False)


def mass_explains_score(a: Analysis) -> Iterator[Finding]:
    """Among the controls alone, more attention mass goes with a higher score: the comparison needs matched mass."""
    for t in a.leading:
        masses = control_masses(a, t)
        if len(masses) != t.effect.r or t.effect.r < 5:
            continue
        found = st.spearman(masses, t.effect.controls)
        if abs(found.rho) > st.critical_rho(t.effect.r, 0.01):
            text = (
                f"among the {t.effect.r} control sets, score and attention mass are correlated "
                f"(Spearman {found.rho:.2f}); compare at equal mass"
            )
            yield _find("mass-explains-score", t, text, False)


def control_masses(a: Analysis, test: Test) -> list[float]:
    """Mean attention mass of every control set on the condition's keys before it acts, in draw order.

    A contrast of two cells has two conditions; both count. Empty where the dose is unknown.
    """
    task = a.task_of(test)
    keys = control_keys(task.run, test.effect.key, test.effect.family)
    if not keys or not task.evidence.n:
        return []
    found = [
        block.before[:, block.columns(keys)].mean(axis=0)
        for (_, condition), block in sorted(task.evidence.blocks.items())
        if of_contrast(condition, test.effect.condition) and set(keys) <= set(block.sets)
    ]
    masses = np.mean(found, axis=0) if found else np.full(1, np.nan)
    return [] if np.isnan(masses).any() else [float(v) for v in masses]


def discovery_images(a: Analysis, test: Test) -> set[str]:
    """Hashes of the images that the set was found on, where its provenance lists them."""
    provenance = _provenance(a, test)
    for value in (provenance, provenance.get("corpus"), provenance.get("data")):
        if isinstance(value, Mapping):
            for key in ("image_shas", "images_sha", "images"):
                if isinstance(value.get(key), list):
                    return {str(v) for v in value[key]}
    return set()


def discovery_split(a: Analysis, test: Test) -> str | None:
    """Name of the split that the set was found on."""
    provenance = _provenance(a, test)
    for value in (provenance, provenance.get("corpus"), provenance.get("data")):
        if isinstance(value, Mapping) and isinstance(value.get("split"), str):
            return str(value["split"])
    return None


def evaluation_images(task: TaskAnalysis) -> set[str]:
    """Hashes of every image that the task showed, and its items' cluster names."""
    out = set(task.evidence.clusters)
    for detail in task.evidence.details:
        for shas in (detail.get("images") or {}).values():
            out |= set(shas)
    return out


def main_images(detail: Mapping[str, Any]) -> list[str]:
    """Images of the arm that carries the answer."""
    images = detail.get("images") or {}
    for arm in ("matched", "grid"):
        if images.get(arm):
            return [str(v) for v in images[arm]]
    return [str(v) for v in next(iter(images.values()), [])]


def _provenance(a: Analysis, test: Test) -> Mapping[str, Any]:
    run = a.evidence.runs[test.run]
    found = run.sources.get(test.effect.key)
    if found is None:
        entry = next(e for e in run.tested if e.key == test.effect.key)
        found = run.sources.get(entry.parent or "")
    return found.provenance if found is not None else {}


__all__ = ["place"]
