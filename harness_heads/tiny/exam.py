"""One model's whole examination on *choose*: skills, layer cuts, necessity, and the bars they must pass."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

from .architecture import LAYERS
from .augment import Bank, build_bank
from .encode import Encoder
from .lean import Lean
from .measure import Head, Necessity, layer_matched, make_pairs, rank_scores, top
from .skills import Examiner, Letters, Skills

TOP = 8
RENDERS = 2


@dataclass(frozen=True)
class Amounts:
    """Sizes of an examination.

    items, boxes: Items of each skill (a multiple of 40) and of each kind of box.
    pairs: Items of NCS; strips: Strips that heads are ranked on, twelve queries each.
    controls, first: Layer-matched sets, and the first ones among them that the small test uses.
    quiet: Layer-matched sets for the ordinal set, the negative control.
    """

    items: int = 480
    boxes: int = 120
    pairs: int = 200
    strips: int = 60
    controls: int = 250
    first: int = 20
    quiet: int = 60


@dataclass(frozen=True)
class SetResult:
    """NCS of a ranked set and of its layer-matched sets.

    p, p_first: rank p among all and among the first ones, ties counted against the set.
    """

    heads: list[Head]
    ncs: float
    low: float
    high: float
    control_mean: float
    control_sd: float
    control_max: float
    first_max: float
    p: float
    p_first: float


@dataclass(frozen=True)
class Bar:
    """A requirement. value: What was measured; passed: Whether it holds."""

    name: str
    value: float
    wanted: str
    passed: bool


@dataclass(frozen=True)
class Exam:
    """Everything measured on one model; kept: share of the headroom left by each layer's cut."""

    seed: int
    headroom: float
    kept: list[float]
    referring: SetResult
    ordinal_last: SetResult
    skills: Skills
    bars: list[Bar]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Exam":
        """The exam that ``to_json`` gave."""
        skills = dict(values["skills"])
        for name in ("mismatched", "blank"):
            skills[name] = Letters(**{key: _plain(value) for key, value in skills[name].items()})
        sets = {
            name: SetResult(**(values[name] | {"heads": [(layer, head) for layer, head in values[name]["heads"]]}))
            for name in ("referring", "ordinal_last")
        }
        return cls(**(values | sets | {"skills": Skills(**skills), "bars": [Bar(**bar) for bar in values["bars"]]}))


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def load(folder: Path) -> tuple[Lean, Encoder]:
    """A saved model on the lean forward pass."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    encoder = Encoder(AutoProcessor.from_pretrained(folder).tokenizer)
    return Lean(model, encoder.prefix, encoder.vision_end), encoder


def examine_set(necessity: Necessity, heads: list[Head], count: int, first: int, rng: np.random.Generator) -> SetResult:
    """NCS of a set against layer-matched sets."""
    items = necessity.items(heads)
    controls = np.array([necessity.score(layer_matched(heads, rng)) for _ in range(count)])
    ncs, half = float(items.mean()), 1.96 * float(items.std(ddof=1)) / len(items) ** 0.5
    few = controls[:first]
    return SetResult(
        heads,
        ncs,
        ncs - half,
        ncs + half,
        float(controls.mean()),
        float(controls.std(ddof=1)),
        float(controls.max()),
        float(few.max()),
        float(1 + (controls >= ncs - 1e-6).sum()) / (len(controls) + 1),
        float(1 + (few >= ncs - 1e-6).sum()) / (len(few) + 1),
    )


def examine(folder: Path, seed: int, amounts: Amounts) -> Exam:
    """Examine a saved model.

    Heads are ranked on *discover*; everything else is measured on *choose*. *evaluate* is not touched.

    Args:
        folder: Model folder.
        seed: The model's training seed, for the record.
        amounts: Sizes.
    """
    with torch.no_grad():
        lean, encoder = load(folder)
        rng = np.random.default_rng(4711)  # the same items and strips for every model
        discover: Bank = build_bank("discover", RENDERS, augment=False, rng=rng)
        choose: Bank = build_bank("choose", RENDERS, augment=False, rng=rng)
        scores = rank_scores(lean, encoder, discover, amounts.strips, rng)
        necessity = Necessity(lean, encoder, make_pairs(choose, encoder, amounts.pairs, rng))
        referring = examine_set(necessity, top(scores.referring, TOP), amounts.controls, amounts.first, rng)
        last = examine_set(necessity, top(scores.ordinal_last, TOP), amounts.quiet, amounts.first, rng)
        kept = [necessity.kept(layer) for layer in range(LAYERS)]
        skills = Examiner(lean, encoder, choose, seed=4711).examine(amounts.items, amounts.boxes)
    bars = judge(skills, kept, necessity.headroom, referring, last, amounts)
    return Exam(seed, necessity.headroom, kept, referring, last, skills, bars)


ACCURACY_BARS = {
    "matched": 0.97,
    "text": 0.98,
    "named": 0.95,
    "marked": 0.95,
    "find": 0.95,
    "referring": 0.95,
    "ordinal": 0.95,
    "ordinal_mcq": 0.95,
    "box_grid": 0.8,
    "box_strip": 0.8,
}


def judge(
    skills: Skills,
    kept: list[float],
    headroom: float,
    referring: SetResult,
    last: SetResult,
    amounts: Amounts,
) -> list[Bar]:
    """Hold the measurements against what is wanted."""
    bars = [
        Bar(name, skills.accuracy[name], f">= {limit}", skills.accuracy[name] >= limit)
        for name, limit in ACCURACY_BARS.items()
    ]
    for name, letters in (("mismatched", skills.mismatched), ("blank", skills.blank)):
        fair = 0.22 <= letters.accuracy <= 0.28
        bars.append(Bar(f"{name}: accuracy", letters.accuracy, "0.22 to 0.28", fair))
        for reading, shares in (("mean P", letters.mean), ("argmax", letters.argmax)):
            largest = max(shares)
            bars.append(Bar(f"{name}: largest letter by {reading}", largest, "<= 0.35", largest <= 0.35))
    least, share = min(kept), referring.ncs / headroom
    bars.append(Bar("headroom kept, worst layer cut", least, ">= 1/3", least >= 1 / 3))
    bars.append(Bar("query-span set: NCS / headroom", share, ">= 0.1", share >= 0.1))
    ratio = referring.ncs / max(abs(referring.control_mean), 1e-9)
    bars.append(Bar("query-span set: NCS / |control mean|", ratio, ">= 5", ratio >= 5))
    beats = referring.ncs > referring.first_max
    bars.append(Bar(f"query-span set: p, first {amounts.first} controls", referring.p_first, "least", beats))
    limit = 2 / (amounts.controls + 1)
    name = f"query-span set: p, {amounts.controls} controls"
    bars.append(Bar(name, referring.p, f"<= 2/{amounts.controls + 1}", referring.p <= limit + 1e-12))
    quiet = abs(last.ncs) < 0.02 or last.p > 0.05
    bars.append(Bar("ordinal, last row: NCS", last.ncs, "|NCS| < 0.02 or p > .05", quiet))
    return bars
