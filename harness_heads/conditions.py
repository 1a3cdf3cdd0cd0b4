"""Condition and ConditionTable: what is done to a head set, without saying to which set.

A run is the product of a SetTable and a ConditionTable. A condition is pure data (no torch), so that plans, records
and reports can speak of it; :mod:`harness_heads.interventions` turns it into masks, biases and zeros on a prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from harness_heads.errors import HarnessHeadsError, did_you_mean

Op = Literal["mask", "steer", "ablate"]
Beta = float | Literal["hard"]

OPS: tuple[Op, ...] = ("mask", "steer", "ablate")
ROW_GROUPS = ("prefix", "image", "question", "tail", "last")
"""Groups of query positions: before the first image token; first to last image token; after it up to the end of the
user turn; the template's own tokens after that; the final prompt row (a part of tail)."""
MAX_BETA = 1e30  # scores are float32, and a sum of infinities is no number
PHASES = ("both", "prefill", "decode")
NUMERICS = ("float32", "bf16_round")
ABLATIONS = ("zero", "uniform")


@dataclass(frozen=True)
class Condition:
    """One intervention on one prompt.

    Attributes:
        op: ``mask`` cuts attention to ``keys``; ``steer`` adds +beta to the scores of ``keys`` (a region) and -beta to
            those of every other image token, text untouched; ``ablate`` zeroes the head's output before ``o_proj``.
        keys: ``image`` (all image tokens), ``text`` (all non-image tokens of the user turn) or the name of a region of
            the probe; ``""`` for ablate.
        rows: ``("all",)`` or a union of :data:`ROW_GROUPS`; ``all`` includes rows of generated tokens.
        beta: steering strength, finite or ``"hard"`` (the exact limit); ``None`` unless op is steer.
        phase: when it acts: at ``prefill``, ``decode`` or ``both``.
        keep_self: masked image rows keep their own key. Default False: the papers' mask cuts all image keys.
        numerics: ``float32`` adds beta to float32 scores; ``bf16_round`` rounds score and sum to bfloat16 as the public
            gaze-heads code does (at 1e4 attention over the region becomes uniform).
        ablation: ``zero`` output (paper B's words) or ``uniform`` attention (what the retrieval-head code does).
    """

    op: Op
    keys: str = "image"
    rows: tuple[str, ...] = ("all",)
    beta: Beta | None = None
    phase: str = "both"
    keep_self: bool = False
    numerics: str = "float32"
    ablation: str = "zero"

    def __post_init__(self) -> None:
        _known("op", self.op, OPS)
        if not isinstance(self.keys, str):
            raise HarnessHeadsError(
                f"condition: keys={self.keys!r} is no word; write 'image', 'text' or a region's name"
            )
        _known("phase", self.phase, PHASES)
        _known("numerics", self.numerics, NUMERICS)
        _known("ablation", self.ablation, ABLATIONS)
        if not isinstance(self.rows, tuple):  # a word would be read letter by letter
            raise HarnessHeadsError(f"condition: rows={self.rows!r} is no tuple; write for example ('last',)")
        if not self.rows:
            raise HarnessHeadsError("condition: rows is empty; name 'all' or a union of row groups")
        for group in self.rows:
            _known("row group", group, ("all", *ROW_GROUPS))
        if "all" in self.rows and len(self.rows) > 1:
            raise HarnessHeadsError(f"condition: rows {'+'.join(self.rows)} mixes 'all' with groups; write one of them")
        if self.op == "steer":
            if self.beta is None:
                raise HarnessHeadsError("condition: steer needs beta, a finite number or 'hard'")
            if self.beta != "hard" and (isinstance(self.beta, bool) or not isinstance(self.beta, int | float)):
                raise HarnessHeadsError(f"condition: beta={self.beta!r} is no number; write a finite number or 'hard'")
            if isinstance(self.beta, float) and not math.isfinite(self.beta):
                raise HarnessHeadsError(f"condition: beta={self.beta} is not finite; write 'hard' for the exact limit")
            if self.beta == 0:
                raise HarnessHeadsError("condition: steer with beta 0 moves no attention; give another value")
            if self.beta != "hard" and abs(self.beta) > MAX_BETA:
                raise HarnessHeadsError(f"condition: |beta| above {MAX_BETA:g} is no float32 score; write 'hard'")
        elif self.beta is not None:
            raise HarnessHeadsError(f"condition: {self.op} takes no beta (got {self.beta}); only steer does")
        if self.keep_self and self.op != "mask":
            raise HarnessHeadsError(f"condition: keep_self is an option of mask, {self.op} would not look at it")
        if self.op == "ablate" and self.numerics != "float32":
            raise HarnessHeadsError("condition: numerics concern scores, and ablate looks at none; leave it out")
        if self.op != "ablate" and self.ablation != "zero":
            raise HarnessHeadsError(f"condition: ablation={self.ablation} is an option of ablate, not of {self.op}")

    @property
    def name(self) -> str:
        """Key of tables and records; every option off its default shows in it."""
        parts = [f"{self.op}:{self.keys}" if self.op != "ablate" else f"ablate:{self.ablation}"]
        if self.rows != ("all",):
            parts.append("rows=" + "+".join(self.rows))
        if self.beta is not None:
            parts.append(f"beta={_beta_word(self.beta)}")
        if self.phase != "both":
            parts.append(f"phase={self.phase}")
        if self.keep_self:
            parts.append("keep_self")
        if self.numerics != "float32":
            parts.append(self.numerics)
        return ":".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {**asdict(self), "rows": list(self.rows)}


def condition_from_dict(value: Mapping[str, Any]) -> Condition:
    """Read what :meth:`Condition.to_dict` wrote."""
    return Condition(**{**value, "rows": rows if isinstance(rows := value["rows"], str) else tuple(rows)})


@dataclass(frozen=True)
class ConditionTable:
    """Everything that a run does, keyed by name."""

    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        names = [c.name for c in self.conditions]
        if len(set(names)) != len(names):
            raise HarnessHeadsError(f"condition table: a condition is listed twice in {names}")

    def __iter__(self) -> Iterator[Condition]:
        return iter(self.conditions)

    def __len__(self) -> int:
        return len(self.conditions)


def expand(
    conditions: Sequence[Condition],
    *,
    rows: Sequence[tuple[str, ...]] = (),
    betas: Sequence[Beta] = (),
) -> tuple[Condition, ...]:
    """Product of a probe's conditions with the row scopes and betas of a run; empty lists keep the probe's own.

    Order: conditions outermost, then rows, then betas; betas touch steering only.
    """
    out: list[Condition] = []
    for condition in conditions:
        for scope in rows or (condition.rows,):
            scoped = replace(condition, rows=tuple(scope))
            if condition.op == "steer" and betas:
                out.extend(replace(scoped, beta=beta) for beta in betas)
            else:
                out.append(scoped)
    return tuple(out)


def _beta_word(beta: Beta) -> str:
    """Short where six digits say it all; two betas never share a name."""
    if isinstance(beta, str):
        return beta
    short = format(beta, "g")
    return short if float(short) == beta else repr(float(beta))


def _known(what: str, word: str, known: Sequence[str]) -> None:
    if not isinstance(word, str) or word not in known:
        near = did_you_mean(word, known) if isinstance(word, str) else ""
        raise HarnessHeadsError(f"condition: unknown {what} {word!r}{near} (known: {', '.join(known)})")
