"""Proof, on the loaded model and a real prompt, that interventions do what they say.

Four checks, made before anything is scored under a kind of condition that was not proved before:

* fired: in every layer that a set names, the function ran, and masked keys have mass exactly 0, steered ones more;
* untouched: on a touched layer's own input, the outputs of all untouched heads are bit-equal to the base kernel's;
* local: on that input, the outputs of the touched heads are those of the dense reference;
* reference: the engine's logits are those of a full forward with the dense reference in every layer.

The reference is :mod:`harness_heads.verify_reference`. In 16 bits the logits of two right implementations differ by
much, and the local check is the sharper one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harness_heads.attention import Call, forward_arguments, handling, installed
from harness_heads.conditions import Condition
from harness_heads.engine_handlers import Overwrite, Target
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head, HeadSet
from harness_heads.interventions import Action
from harness_heads.verify_reference import Dense, DenseRow

if TYPE_CHECKING:
    from harness_heads.engine import Engine

# largest difference of log-probabilities to the reference, by dtype: kernels round differently, 16-bit ones much more
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
# largest difference of a touched head's output on the same input, as a share of the largest value it can output
LOCAL = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.02, torch.float16: 0.005}
ROUNDED = 0.25  # the same under bf16_round: a score that falls to the other side of a rounding step moves by up to that
LIKELY = -10.0  # log-probability of tokens that are compared: rounding of improbable ones is not of interest
COMPARED = 50  # at least so many tokens are compared, the likeliest; a large vocabulary may hold none above LIKELY
NOISE = 5.0  # the gap may be so many times what the reference differs from the host's own forward without intervention


@dataclass(frozen=True)
class Proof:
    """What was proved.

    Attributes:
        conditions: names of the conditions that were tried, one of every kind; ``(generated)`` behind those that were
            tried in ``generate``, prompt and decode step.
        layers: decoder layers in which touched heads were seen to change.
        heads: how many heads were touched.
        untouched_bit_equal: whether every untouched head of a touched layer stayed bit-equal on the same input; false
            where text was generated alone, for which that is not looked at.
        reference_gap: largest difference of log-probabilities between engine and dense reference.
        effect: largest change of log-probabilities that the reference itself shows against no intervention.
        tolerance: what the gap was held to.
        local_gap: largest difference of a touched head's output to the reference on the same input, as a share of the
            largest value; ``None`` where text was generated alone.
        weak: conditions whose own effect was not at least twice the tolerances, in logits or locally: there the proof
            could not have told acting from not acting.
        dtype: the model's.
    """

    conditions: tuple[str, ...]
    layers: tuple[int, ...]
    heads: int
    untouched_bit_equal: bool
    reference_gap: float
    effect: float
    tolerance: float
    local_gap: float | None
    weak: tuple[str, ...]
    dtype: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {**asdict(self), "conditions": list(self.conditions), "layers": list(self.layers), "weak": [*self.weak]}


@dataclass(frozen=True)
class Shown:
    """What one condition showed on one set."""

    name: str
    gap: float
    effect: float
    tolerance: float
    local_gap: float | None = None
    local_effect: float = 0.0
    local_tolerance: float = 0.0

    @property
    def weak(self) -> bool:
        return self.effect < 2 * self.tolerance or self.local_effect < 2 * self.local_tolerance


@dataclass(eq=False)
class Ledger:
    """What has been proved on one engine so far: kinds of conditions, and for each the layers."""

    layers: dict[tuple[str, Condition], set[int]] = field(default_factory=dict)
    heads: set[Head] = field(default_factory=set)
    shown: list[Shown] = field(default_factory=list)
    dtype: torch.dtype = torch.float32

    def missing(self, way: str, sets: Sequence[HeadSet], condition: Condition) -> list[HeadSet]:
        """Sets that have yet to be tried under this kind of condition: each names a layer in which none was."""
        layers, chosen = set(self.layers.get((way, kind(condition)), ())), []
        for one in sets:
            named = {head.layer for head in one}
            if not named <= layers:
                chosen.append(one)
                layers |= named
        return chosen

    def enter(self, way: str, sets: Sequence[HeadSet], condition: Condition, shown: Shown) -> None:
        """Note that ``condition`` was proved on ``sets``."""
        known = self.layers.setdefault((way, kind(condition)), set())
        known |= {head.layer for one in sets for head in one}
        self.heads |= {head for one in sets for head in one}
        self.shown.append(shown)

    @property
    def proof(self) -> Proof | None:
        """All of it together, ``None`` before the first."""
        if not self.shown:
            return None
        names = dict.fromkeys(one.name for one in self.shown)
        # a head that changes beside the set is an error, so what was looked at held
        local = [one.local_gap for one in self.shown if one.local_gap is not None]
        strong = {one.name for one in self.shown if not one.weak}
        return Proof(
            tuple(names),
            tuple(sorted(set[int]().union(*self.layers.values()))),
            len(self.heads),
            bool(local),
            max(one.gap for one in self.shown),
            max(one.effect for one in self.shown),
            max(one.tolerance for one in self.shown),
            max(local, default=None),
            tuple(name for name in names if name not in strong),
            str(self.dtype).removeprefix("torch."),
        )


def kind(condition: Condition) -> Condition:
    """What conditions must share for the proof of one to hold for the other: all but which region they name."""
    return condition if condition.keys in ("image", "text", "") else replace(condition, keys="region")


def self_check(engine: Engine, inputs: Mapping[str, Any], sets: Sequence[HeadSet], actions: Sequence[Action]) -> None:
    """Prove every kind of action that was not proved before, on sets until each layer that any set names is covered.

    That each further set acts on each prompt is told by its dose (:mod:`harness_heads.engine_dose`).

    Raises:
        HarnessHeadsError: one line that names the layer, head or condition that fails.
    """
    if not sets:
        raise HarnessHeadsError("self-check: no head set to prove; give one that is not empty")
    ledger, floor = engine.ledger, None
    for action in actions:
        condition = action.condition
        for one in ledger.missing("prompt", sets, condition):
            if floor is None:
                clean = _reference_logprobs(engine, inputs, DenseRow())
                floor = max(TOLERANCE.get(engine.dtype, 0.25), NOISE * _host_gap(engine, inputs, clean))
            gap, effect, tolerance = _check_local(engine, inputs, one.heads, action)
            reference = _reference_logprobs(engine, inputs, DenseRow(frozenset(one.heads), action))
            found = engine.logprobs_under(inputs, one.heads, action)
            shown = compared(engine, condition, condition.name, found, reference, clean, floor)
            shown = replace(shown, local_gap=gap, local_effect=effect, local_tolerance=tolerance)
            ledger.enter("prompt", [one], condition, shown)


def compared(
    engine: Engine, condition: Condition, name: str, found: Tensor, reference: Tensor, clean: Tensor, tolerance: float
) -> Shown:
    """Log-probabilities (..., V) of the engine against those of the reference.

    Raises:
        HarnessHeadsError: if they differ by more than the tolerance, or are no numbers.
    """
    if condition.numerics == "bf16_round":
        tolerance = max(tolerance, TOLERANCE[torch.bfloat16])
    gap, effect = largest_gap(found, reference), largest_gap(clean, reference)
    if not gap <= tolerance:
        raise HarnessHeadsError(
            f"self-check: condition {name} differs from the dense reference by {gap:.3g} in log-probability "
            f"(tolerance {tolerance:g} in {engine.dtype}); do not trust scores of this model"
        )
    return Shown(name, gap, effect, tolerance)


def largest_gap(found: Tensor, reference: Tensor) -> float:
    """Largest difference over the tokens that are likely under the reference; not-a-number where either holds one."""
    border = reference.topk(min(COMPARED, reference.shape[-1])).values[..., -1:].clamp(max=LIKELY)
    gaps = (found - reference).abs()[reference >= border]
    return float(gaps.max()) if len(gaps) and not bool(reference.isnan().any()) else float("nan")


class _Local:
    """Acts as the engine does and compares each touched layer with base kernel and reference on the same input."""

    def __init__(self, overwrite: Overwrite, heads: Sequence[Head], action: Action) -> None:
        self.overwrite = overwrite
        self.dense = Dense([DenseRow(frozenset(heads), action)])
        self.by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            self.by_layer.setdefault(layer, []).append(head)
        self.seen: set[int] = set()
        self.gaps, self.effects = [0.0], [0.0]

    def attend(self, layer: int, call: Call) -> Tensor:
        base = call.base()
        out = self.overwrite.attend(layer, call)
        touched = self.by_layer.get(layer, [])
        untouched = [h for h in range(out.shape[2]) if h not in touched]
        if not torch.equal(base[:, :, untouched], out[:, :, untouched]):
            raise HarnessHeadsError(f"self-check: layer {layer}: a head outside the set changed; do not trust scores")
        if touched:
            self.seen.add(layer)
            dense = self.dense.attend(layer, call)[:, :, touched].double()
            scale = float(call.value.double().abs().max()) or 1.0
            self.gaps.append(float((out[:, :, touched] - dense).abs().max()) / scale)
            self.effects.append(float((base[:, :, touched] - dense).abs().max()) / scale)
        return out


def _check_local(
    engine: Engine, inputs: Mapping[str, Any], heads: Sequence[Head], action: Action
) -> tuple[float, float, float]:
    """The first three checks; gap, effect and tolerance of the local one."""
    ids, condition = inputs["input_ids"], action.condition
    overwrite = Overwrite((Target(tuple(heads), action),), ids.device, ids.shape[1])
    local = _Local(overwrite, heads, action)
    with torch.no_grad(), installed(engine.model, engine.family), handling(local):
        engine.model(**forward_arguments(engine.model, inputs))
    missing = set(local.by_layer) - local.seen
    if missing:
        raise HarnessHeadsError(f"self-check: layer {min(missing)}: its attention never ran; heads there cannot act")
    mass = float(overwrite.mass[0])
    if condition.op == "mask" and not condition.keep_self and mass != 0.0:
        raise HarnessHeadsError(f"self-check: condition {condition.name}: masked keys kept attention mass {mass:.3g}")
    if condition.op == "steer" and not mass > 0.0 and not bool(action.others.any()):
        raise HarnessHeadsError(f"self-check: condition {condition.name}: the target got no attention")
    tolerance = ROUNDED if condition.numerics == "bf16_round" else LOCAL.get(engine.dtype, 0.02)
    gap = max(local.gaps)
    if not all(one <= tolerance for one in local.gaps):  # not-a-number among them fails too
        raise HarnessHeadsError(
            f"self-check: condition {condition.name}: a touched head's output differs from the dense reference by "
            f"{gap:.3g} of the largest value on the same input (tolerance {tolerance:g} in {engine.dtype}); do "
            "not trust scores of this model"
        )
    return gap, max(local.effects), tolerance


def _reference_logprobs(engine: Engine, inputs: Mapping[str, Any], row: DenseRow) -> Tensor:
    with torch.no_grad(), installed(engine.model, engine.family), handling(Dense([row])):
        logits = engine.model(**forward_arguments(engine.model, inputs)).logits[0, -1]
    logprobs: Tensor = logits.to(torch.float64).log_softmax(-1)
    return logprobs


def _host_gap(engine: Engine, inputs: Mapping[str, Any], clean: Tensor) -> float:
    """How far the reference is from the host's own forward where nothing is done: what rounding alone makes."""
    with torch.no_grad():
        logits = engine.model(**forward_arguments(engine.model, inputs)).logits[0, -1]
    return largest_gap(logits.to(torch.float64).log_softmax(-1), clean)
