"""The reporting checklist: nineteen items, each reported, not applicable with the reason, or MISSING.

Paper A turns its findings into a protocol whose own list is not in the texts at hand; the items here are reconstructed
from what its tables and pitfalls make a reader need (docs/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness_heads.protocol.analysis import Analysis
from harness_heads.protocol.findings import Finding
from harness_heads.protocol.formats import counted, joined, number, percent
from harness_heads.protocol.pitfalls_data import discovery_images, discovery_split
from harness_heads.protocol.statistics import minimum_controls

REPORTED, NOT_APPLICABLE, MISSING = "reported", "not applicable", "MISSING"


@dataclass(frozen=True)
class Item:
    """One item of the checklist.

    Attributes:
        number, title: which.  status: one of the three.  text: the value, or why there is none.
        link: anchor of the place in the report.
        declared: stated by the plan's author, not seen in the evidence.
    """

    number: int
    title: str
    status: str
    text: str
    link: str = ""
    declared: bool = False


_Answer = tuple[str, str, str]


def checklist(a: Analysis, found: Sequence[Finding]) -> tuple[Item, ...]:
    """Evaluate all nineteen items."""
    out = []
    for index, (title, check) in enumerate(_ITEMS, 1):
        if check is None:
            out.append(_declared(a, index, title))
        else:
            status, text, link = check(a, found)
            out.append(Item(index, title, status, text, link))
    return tuple(out)


def counts(items: Sequence[Item]) -> dict[str, int]:
    """How many items have each status."""
    return {status: sum(i.status == status for i in items) for status in (REPORTED, NOT_APPLICABLE, MISSING)}


def _declared(a: Analysis, index: int, title: str) -> Item:
    text = a.evidence.plan.declared.get(str(index)) if a.evidence.plan is not None else None
    if text:
        return Item(index, title, REPORTED, f"{text} (declared in the plan)", "runs", True)
    return Item(
        index, title, MISSING, f'no evidence can show it; declare it in the plan: "declared": {{"{index}": "..."}}'
    )


def _model(a: Analysis, _: Sequence[Finding]) -> _Answer:
    lines, absent = [], set()
    for run in a.evidence.runs:
        m = run.model
        for key in ("id", "dtype", "attention"):
            if not m.get(key):
                absent.add(key)
        soft = sum(n > 0 for n in run.geometry.heads)
        lines.append(
            f"{m.get('id')} (revision {m.get('revision') or 'none: local weights'}), {m.get('dtype')}, "
            f"{m.get('attention')}, M = {run.geometry.total} heads, "
            f"{soft} of {len(run.geometry.heads)} layers with softmax attention"
        )
    if not lines:
        return MISSING, "no wrapped model answered", ""
    if absent:
        return MISSING, f"the run block lacks {joined(sorted(absent))}", "runs"
    return REPORTED, "; ".join(dict.fromkeys(lines)), "runs"


def _discovery(a: Analysis, names: Sequence[str], what: str) -> _Answer:
    """Whether every tested set's provenance answers a question, by any of the given keys."""
    lines, lacking = [], []
    for name, provenance in _provenances(a):
        here = [f"{k} {_brief(v)}" for k in names if (v := _deep(provenance, k)) is not None]
        if here:
            lines.append(f"{name}: {', '.join(here)}")
        else:
            lacking.append(name)
    if lacking or not lines:
        return MISSING, f"the provenance of {joined(lacking) or 'every set'} does not say {what}", "sets"
    return REPORTED, "; ".join(lines), "sets"


def _corpus(a: Analysis, _: Sequence[Finding]) -> _Answer:
    names = ("words", "setting", "query", "template", "corpus", "benchmark", "strips", "samples", "region_rule")
    return _discovery(a, names, "query, corpus, number of strips and box-to-token rule")


def _rows(a: Analysis, _: Sequence[Finding]) -> _Answer:
    names: tuple[str, ...] = (
        "source_words",
        "source",
        "rows",
        "measure",
        "aggregation",
        "region_norm",
        "normalisation",
        "selection",
    )
    names += ("ties", "order", "out_row", "span", "setting")
    return _discovery(a, names, "rows, aggregation, normalisation and ties")


def _size(a: Analysis, _: Sequence[Finding]) -> _Answer:
    lines = []
    for run in a.evidence.runs:
        for entry in run.tested:
            k = len(entry.heads)
            layers = sum(n > 0 for n in entry.heads.per_layer)
            lines.append(
                f"{entry.heads.name}: k = {k} ({percent(k / run.geometry.total)} of M) in {counted(layers, 'layer')}"
            )
    return (REPORTED, "; ".join(dict.fromkeys(lines)), "sets") if lines else (MISSING, "no tested set", "")


def _ceiling(a: Analysis, _: Sequence[Finding]) -> _Answer:
    every = _provenances(a)
    own = []
    for name, provenance in every:
        stability = provenance.get("stability")
        if isinstance(stability, Mapping) and "overlap_of_halves" in stability:
            own.append(f"{name}: halves share {stability['overlap_of_halves']} (chance {stability.get('chance')})")
    pairs = sum(len(folder.get("overlaps", [])) for folder in a.evidence.discovery)
    if pairs:
        return REPORTED, "; ".join([f"{counted(pairs, 'pair')} of settings over half splits", *own]), "overlap"
    if own and len(own) == len(every) and len(every) > 1:
        return REPORTED, "; ".join(own) + "; alternatives in the overlap table", "overlap"
    if every and all(p.get("kind") == "published" for _, p in every):
        return NOT_APPLICABLE, "published sets: their discovery data are not at hand", ""
    return MISSING, "no split-half stability in the sets' provenance; add their discovery folders to the command", ""


def _intervention(a: Analysis, _: Sequence[Finding]) -> _Answer:
    lines = []
    for run in a.evidence.runs:
        names = ", ".join(c.name for c in run.conditions)
        phase = joined(sorted({c.phase for c in run.conditions}))
        lines.append(f"{names} (phase {phase})")
    silent = [t for t in a.leading if math.isnan(t.mass_after) and not t.effect.condition.startswith("ablate")]
    if silent:
        return MISSING, f"{'; '.join(lines)}; the achieved dose is not reported", "dose"
    return (REPORTED, "; ".join(lines), "dose") if lines else (MISSING, "nothing was done", "")


def _disjoint(a: Analysis, found: Sequence[Finding]) -> _Answer:
    bad = [f for f in found if f.rule in ("shared-images", "tuned-on-evaluation")]
    if bad:
        return MISSING, bad[0].text, "pitfalls"
    known = [t for t in a.leading if discovery_images(a, t) or discovery_split(a, t)]
    plan = a.evidence.plan
    if len(known) < len(a.leading) or not known:
        return MISSING, "the sets' provenance names neither their images nor their split", "sets"
    splits = sorted({s for t in known if (s := discovery_split(a, t))})
    where = f"discovered on {joined(splits) or 'listed images'}, no image in common"
    tuned = f"; k, beta and rows chosen on {plan.tuned_on}" if plan and plan.tuned_on else "; nothing was tuned"
    return REPORTED, where + tuned, "sets"


def _audit(a: Analysis, _: Sequence[Finding]) -> _Answer:
    every = [x for task in a.tasks for x in task.audits]
    if not every:
        return MISSING, "no arm with a known expectation was measured", "arms"
    failed = [f"{x.task} {x.arm} {number(x.p)}" for x in every if not x.passed]
    heads = [f"headroom {number(t.headroom)} on {t.evidence.task}" for t in a.tasks if not math.isnan(t.headroom)]
    state = f"{len(every) - len(failed)} of {len(every)} arms in range"
    if failed:
        state += f"; out of range: {joined(failed)}"
    return REPORTED, "; ".join([state, *heads]), "arms"


def _both(a: Analysis, _: Sequence[Finding]) -> _Answer:
    by_set: dict[str, set[str]] = {}
    for t in a.leading:
        by_set.setdefault(t.effect.name, set()).add(
            "necessity" if t.effect.score.startswith(("ncs", "grounding")) else "steerability"
        )
    lacking = {name: kinds for name, kinds in by_set.items() if len(kinds) < 2}
    if not by_set:
        return MISSING, "neither was measured", ""
    if lacking:
        name, kinds = next(iter(sorted(lacking.items())))
        other = "steerability" if "necessity" in kinds else "necessity"
        return MISSING, f"{len(lacking)} set(s) without {other}, first {name}", "results"
    return REPORTED, f"both, for {joined(sorted(by_set))}", "results"


def _controls(a: Analysis, found: Sequence[Finding]) -> _Answer:
    if not a.leading or any(t.effect.r == 0 for t in a.leading):
        return MISSING, "no control sets", "results"
    short = [t for t in a.leading if t.effect.r < max(19, minimum_controls(a.alpha, t.m))]
    families = sorted({t.effect.family for t in a.tests})
    seeds = {e.seed for run in a.evidence.runs for e in run.sets.role("control")}
    text = f"R = {', '.join(str(r) for r in sorted({t.effect.r for t in a.leading}))}, families {joined(families)}"
    text += "" if None in seeds else ", seeds stored"
    if short:
        need = max(max(19, minimum_controls(a.alpha, t.m)) for t in short)
        return MISSING, f"{text}; m = {max(t.m for t in short)} needs R >= {need}", "results"
    if "layer" not in families:
        return MISSING, f"{text}; no layer-matched family", "results"
    wanted = [f for f in ("attention", "any") if f not in families]
    if wanted:
        return MISSING, f"{text}; family {joined(wanted)} not drawn", "results"
    if any(f.rule == "set-left-out" for f in found):
        return MISSING, f"{text}; drawn outside the set", "results"
    return REPORTED, text, "results"


def _p(a: Analysis, _: Sequence[Finding]) -> _Answer:
    if not a.leading or any(math.isnan(t.p) for t in a.leading):
        return MISSING, "a rank p cannot be had without controls", "results"
    return REPORTED, f"rank p with its floor, Holm and max-T over m = {a.m}, z, share of the headroom", "results"


def _spread(a: Analysis, _: Sequence[Finding]) -> _Answer:
    if any(t.effect.r < 2 for t in a.leading) or not a.leading:
        return MISSING, "fewer than two control draws", "results"
    return REPORTED, "every control set is a dot of the first figure; SD of individual draws in the table", "results"


def _intervals(a: Analysis, _: Sequence[Finding]) -> _Answer:
    if not a.leading or any(math.isnan(t.effect.low) for t in a.leading):
        return MISSING, "an item interval is not estimable", "intervals"
    if any(math.isnan(t.resampled.crossed_low) for t in a.leading):
        return MISSING, "item intervals only; crossed ones need two control draws", "intervals"
    return REPORTED, "t, bootstrap and BCa over items; items crossed with draws", "intervals"


def _damage(a: Analysis, _: Sequence[Finding]) -> _Answer:
    kinds = {e.heads.name.split("/")[-1] for run in a.evidence.runs for e in run.sets.role("damage")}
    if kinds:
        return REPORTED, joined(sorted(kinds)), "damage"
    return MISSING, "no generic-damage sets; add control_family=layer+damage", ""


def _sweeps(a: Analysis, _: Sequence[Finding]) -> _Answer:
    ks = {t.effect.k for t in a.leading}
    betas = {p for t in a.leading for p in t.effect.condition.split(":") if p.startswith("beta=")}
    steers = any(t.effect.condition.startswith("steer") for t in a.leading)
    lacking = ([] if len(ks) > 1 else ["k"]) + (["beta"] if steers and len(betas) < 2 else [])
    if lacking:
        return MISSING, f"no sweep over {joined(lacking)}", "sweeps"
    return REPORTED, f"k in {sorted(ks)}" + (f", {', '.join(sorted(betas))}" if betas else ""), "sweeps"


def _row_groups(a: Analysis, _: Sequence[Finding]) -> _Answer:
    masks = [t for t in a.leading if t.effect.condition.startswith("mask")]
    if not masks:
        return NOT_APPLICABLE, "nothing was masked", ""
    scopes = {p for t in masks for p in t.effect.condition.split(":") if p.startswith("rows=")}
    if scopes:
        return REPORTED, joined(sorted(scopes)), "rows"
    return MISSING, "masked at all rows only; add rows=all+image+question+last", ""


def _models(a: Analysis, _: Sequence[Finding]) -> _Answer:
    names = sorted({str(run.model["id"]) for run in a.evidence.runs})
    if len(names) > 1:
        return REPORTED, joined(names), "runs"
    return (
        MISSING,
        f"only {names[0] if names else 'no model'}; report a run of a further model together with this one",
        "",
    )


_Check = Callable[[Analysis, Sequence[Finding]], _Answer]
_ITEMS: tuple[tuple[str, _Check | None], ...] = (
    ("Model: id, revision, dtype, kernel, heads", _model),
    ("Discovery data: query wording, corpus, strips, box-to-token rule", _corpus),
    ("Attention source: rows, aggregation, normalisation, ties", _rows),
    ("Set size: k, k/M, layer profile", _size),
    ("Split-half ceiling and overlap with alternatives", _ceiling),
    ("Intervention: op, beta, rows, phase, keys, achieved dose", _intervention),
    ("Evaluation images disjoint from discovery; nothing tuned on them", _disjoint),
    ("Leak audit and headroom", _audit),
    ("Necessity and steerability, both", _both),
    ("Controls: R, layer-matched, attention-matched, any layer, seeds", _controls),
    ("Rank p with floor, adjustment with m, z, share of headroom", _p),
    ("Spread of individual controls", _spread),
    ("Item interval and crossed interval", _intervals),
    ("Generic-damage controls", _damage),
    ("Sweeps over k and beta", _sweeps),
    ("Breakdown by row groups", _row_groups),
    ("Per-item outputs released", None),
    ("At least one further model", _models),
    ("Which claims are about items, which about head sets", None),
)


def _provenances(a: Analysis) -> list[tuple[str, dict[str, object]]]:
    """Name and provenance of every tested set; two sets of one name that differ in it both stand."""
    out: list[tuple[str, dict[str, object]]] = []
    for run in a.evidence.runs:
        for entry in run.tested:
            source = run.sources.get(entry.key) or run.sources.get(entry.parent or "")
            pair = (entry.heads.name, dict(source.provenance) if source is not None else {})
            if pair not in out:
                out.append(pair)
    return sorted(out, key=lambda pair: pair[0])


def _deep(provenance: dict[str, object], key: str) -> object | None:
    """A key of the provenance or of one of its own objects."""
    if provenance.get(key) is not None:
        return provenance[key]
    for name, value in provenance.items():
        if isinstance(value, dict) and name != "facts" and value.get(key) is not None:
            found: object = value[key]
            return found
    return None


def _brief(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
