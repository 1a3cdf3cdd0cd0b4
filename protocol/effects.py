"""One set against its control family: every number that is cheap, exact and free of random resampling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from harness_heads.heads import SetEntry
from harness_heads.protocol import statistics as st
from harness_heads.protocol.arrays import Floats
from harness_heads.protocol.evidence import TaskEvidence
from harness_heads.protocol.runs import RunInfo
from harness_heads.protocol.scores import ScoreTable, arm_probabilities, probabilities, score_tables

NO_FAMILY = ""
FAMILY_ORDER = ("layer", "kv_group", "attention", "any", "disjoint", "low_score")


@dataclass(frozen=True)
class Effect:
    """One score of one set under one condition, held against one control family.

    Attributes:
        key, name, k: the set.
        family: control family; ``""`` where the set has no controls.
        n, clusters: items and independent units.
        mean, sd, low, high: over items; 95 % t interval, cluster-robust where items share an image.
        controls: mean score of every individual control set, in draw order.
        control_mean, control_sd, z: of the individual draws; z is descriptive.
        crawford_t, crawford_p: the set against the draws as a sample (one-sided).
        p_upper, p_lower, p_two: rank p; ``floor`` is the smallest that R controls can give.
        reasons: why a NaN is NaN, by field.
    """

    task: str
    score: str
    condition: str
    key: str
    name: str
    k: int
    family: str
    n: int
    clusters: int
    mean: float
    sd: float
    low: float
    high: float
    controls: tuple[float, ...]
    control_mean: float
    control_sd: float
    z: float
    crawford_t: float
    crawford_p: float
    p_upper: float
    p_lower: float
    p_two: float
    floor: float
    primary: bool
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def r(self) -> int:
        """Number of control sets."""
        return len(self.controls)

    @property
    def p_against_zero(self) -> float:
        """Two-sided p of the t-test of the item mean against zero, for comparison with paper A's Table 27 alone.

        Zero is the wrong null: random sets differ from it too. NaN where there is no interval or no spread.
        """
        half, df = (self.high - self.low) / 2, self.clusters - 1
        if not half > 0 or df < 1:
            return math.nan
        return float(2 * stats.t.sf(abs(self.mean) / half * stats.t.ppf(0.975, df), df))


@dataclass(frozen=True)
class ArmLevel:
    """One arm without intervention: what the audits read.

    Attributes:
        p, p_renorm: mean probability of the right option, as it is and renormalised.
        accuracy: share of items whose largest option is the right one.
        mass: mean probability of all options together.
        letters: how often each letter is the largest, shares in letter order.
    """

    arm: str
    p: float
    p_renorm: float
    accuracy: float
    mass: float
    letters: tuple[float, ...]


def families_of(run: RunInfo, key: str) -> tuple[str, ...]:
    """Control families of a set, the exact null first."""
    found = {e.family or "" for e in run.sets.controls(key)}
    return tuple(sorted(found, key=lambda f: (FAMILY_ORDER.index(f) if f in FAMILY_ORDER else 99, f)))


def effects(task: TaskEvidence, run: RunInfo, tables: tuple[ScoreTable, ...] | None = None) -> tuple[Effect, ...]:
    """Every score of every tested set against every family, in table order."""
    out: list[Effect] = []
    codes = st.cluster_codes(task.clusters)
    for table in score_tables(task, run) if tables is None else tables:
        for entry in run.tested:
            if entry.key in table.sets:
                for family in families_of(run, entry.key) or (NO_FAMILY,):
                    out.append(_effect(task, run, table, entry, family, codes))
    return tuple(out)


def control_keys(run: RunInfo, key: str, family: str) -> list[str]:
    """Keys of one family's draws, in draw order."""
    draws = run.sets.controls(key, family) if family else ()
    return [e.key for e in sorted(draws, key=lambda e: (e.draw if e.draw is not None else -1, e.key))]


def _effect(
    task: TaskEvidence, run: RunInfo, table: ScoreTable, entry: SetEntry, family: str, codes: st.Codes
) -> Effect:
    own = table.of([entry.key])[:, 0]
    keys = control_keys(run, entry.key, family)
    null = table.of(keys)
    reasons: dict[str, str] = {}
    if not np.isfinite(own).all() or not np.isfinite(null).all():
        own, null = np.where(np.isfinite(own), own, np.nan), np.where(np.isfinite(null), null, np.nan)
        reasons["mean"] = "an option has probability 0"
    estimate = st.t_interval(own, codes)
    if estimate.reason:
        reasons["low"] = estimate.reason
    mean = float(estimate.mean)
    controls = null.mean(axis=0) if task.n else np.full(len(keys), np.nan)
    spread = st.control_spread(mean, controls)
    r = len(keys)
    if r == 0:
        reasons |= dict.fromkeys(("p_upper", "control_mean", "z"), "no control sets")
    elif r == 1:
        reasons |= dict.fromkeys(("control_sd", "z"), "a single control draw has no spread")
    elif math.isnan(float(spread.z)) and "mean" not in reasons:
        reasons["z"] = "the control sets do not vary"
    tails = {tail: float(st.rank_p(mean, controls, tail)) for tail in ("upper", "lower", "two-sided")}
    return Effect(
        task.task,
        table.score,
        table.condition,
        entry.key,
        entry.heads.name,
        len(entry.heads),
        family,
        task.n,
        int(codes.max()) + 1 if task.n else 0,
        mean,
        float(estimate.sd),
        float(estimate.low),
        float(estimate.high),
        tuple(float(c) for c in controls),
        float(spread.mean),
        float(spread.sd),
        float(spread.z),
        float(spread.t),
        float(spread.p),
        tails["upper"],
        tails["lower"],
        tails["two-sided"],
        st.floor(r),
        table.primary,
        reasons,
    )


def arm_levels(task: TaskEvidence, run: RunInfo) -> tuple[ArmLevel, ...]:
    """Every arm of the task without intervention."""
    out = []
    for arm, logprobs in arm_probabilities(task, run).items():
        right = task.right(arm)
        rows = np.arange(task.n)
        if (right < 0).any():
            continue
        raw, renorm = probabilities(logprobs, "raw"), probabilities(logprobs, "renorm")
        best = logprobs.argmax(axis=1)
        if not task.n:  # a leak audit may leave no item at all
            nothing = (math.nan,) * logprobs.shape[1]
            out.append(ArmLevel(arm, math.nan, math.nan, math.nan, math.nan, nothing))
            continue
        out.append(
            ArmLevel(
                arm,
                float(raw[rows, right].mean()),
                float(renorm[rows, right].mean()),
                float((best == right).mean()),
                float(raw.sum(axis=1).mean()),
                tuple(float((best == letter).mean()) for letter in range(logprobs.shape[1])),
            )
        )
    return tuple(out)


def headroom(levels: tuple[ArmLevel, ...]) -> float:
    """P(c) matched minus mismatched without intervention: the most that NCS can be; NaN without both arms."""
    by_arm = {level.arm: level.p for level in levels}
    return by_arm.get("matched", math.nan) - by_arm.get("mismatched", math.nan)


def doses(task: TaskEvidence, key: str) -> Mapping[str, tuple[float, float]]:
    """Mean attention mass before and after, per ``arm / condition``, NaN where the run reports none."""
    out = {}
    for (arm, condition), block in sorted(task.blocks.items()):
        if key in block.sets:
            column = block.sets.index(key)
            out[f"{arm} / {condition}"] = (_mean(block.before[:, column]), _mean(block.after[:, column]))
    return out


def _mean(values: Floats) -> float:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else math.nan
