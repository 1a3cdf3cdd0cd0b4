"""Proof, on the loaded model and a real prompt, that interventions do what they say.

Three checks, made once before anything is scored:

* fired: in every layer that a set names, the function ran, and masked keys have mass exactly 0, steered ones more;
* local: on a touched layer's own input, the outputs of all untouched heads are bit-equal to the base kernel's;
* reference: the engine's logits equal those of a dense implementation that shares no code with it.

The reference is eager attention written out here: one (H, Q, K) matrix of scores per layer in the model's own dtype,
masks as minus infinity, one full forward of the host's model per set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harness_heads.attention import Call, forward_arguments, handling, installed
from harness_heads.engine_handlers import Overwrite, Target
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head, HeadSet
from harness_heads.interventions import Action

if TYPE_CHECKING:
    from harness_heads.engine import Engine

# largest difference of log-probabilities to the reference, by dtype: kernels round differently, 16-bit ones much more
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
LIKELY = -10.0  # log-probability of tokens that are compared: rounding of improbable ones is not of interest
NOISE = 5.0  # the gap may be so many times what the reference differs from the host's own forward without intervention


@dataclass(frozen=True)
class Proof:
    """What was proved.

    Attributes:
        conditions: names of the conditions that were tried.
        layers: decoder layers in which touched heads were seen to change.
        heads: how many heads were touched.
        untouched_bit_equal: whether every untouched head of a touched layer stayed bit-equal on the same input.
        reference_gap: largest difference of log-probabilities between engine and dense reference.
        effect: largest change of log-probabilities that the reference itself shows against no intervention.
        tolerance: what the gap was held to.
        dtype: the model's.
    """

    conditions: tuple[str, ...]
    layers: tuple[int, ...]
    heads: int
    untouched_bit_equal: bool
    reference_gap: float
    effect: float
    tolerance: float
    dtype: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return {**asdict(self), "conditions": list(self.conditions), "layers": list(self.layers)}


def self_check(engine: Engine, inputs: Mapping[str, Any], sets: Sequence[HeadSet], actions: Sequence[Action]) -> Proof:
    """Prove the first set, and others until every layer that any set names is covered, under every kind of action.

    That each further set acts on each prompt is told by its dose (:mod:`harness_heads.engine_dose`).

    Raises:
        HarnessHeadsError: one line that names the layer, head or condition that fails.
    """
    if not sets:
        raise HarnessHeadsError("self-check: no head set to prove; give one that is not empty")
    chosen = list({(a.condition.op, a.condition.beta, a.condition.numerics): a for a in actions}.values())
    dtype = engine.dtype
    clean = _reference_logprobs(engine, inputs, (), None)
    tolerance = max(TOLERANCE.get(dtype, 0.25), NOISE * _host_gap(engine, inputs, clean))
    layers: set[int] = set()
    gap = effect = 0.0
    proved = _covering(sets)
    for heads, action in product((one.heads for one in proved), chosen):
        layers |= _check_local(engine, inputs, heads, action)
        reference = _reference_logprobs(engine, inputs, heads, action)
        found = engine.logprobs_under(inputs, heads, action)
        likely = (clean > LIKELY) & (reference > LIKELY)
        here = float((found - reference)[likely].abs().max())
        gap, effect = max(gap, here), max(effect, float((reference - clean)[likely].abs().max()))
        if action.condition.numerics == "bf16_round":
            tolerance = max(tolerance, TOLERANCE[torch.bfloat16])
        if not here <= tolerance:
            raise HarnessHeadsError(
                f"self-check: condition {action.condition.name} differs from the dense reference by {gap:.3g} in "
                f"log-probability (tolerance {tolerance:g} in {dtype}); do not trust scores of this model"
            )
    return Proof(
        tuple(a.condition.name for a in chosen),
        tuple(sorted(layers)),
        len({head for one in proved for head in one}),
        True,
        gap,
        effect,
        tolerance,
        str(dtype).removeprefix("torch."),
    )


def _covering(sets: Sequence[HeadSet]) -> list[HeadSet]:
    """The first set, and every later one that names a layer not named before."""
    chosen: list[HeadSet] = []
    layers: set[int] = set()
    for one in sets:
        named = {head.layer for head in one}
        if not named <= layers:
            chosen.append(one)
            layers |= named
    return chosen


class _Local:
    """Acts as the engine does and compares each touched layer with the base kernel on the same input."""

    def __init__(self, overwrite: Overwrite, heads: Sequence[Head]) -> None:
        self.overwrite = overwrite
        self.by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            self.by_layer.setdefault(layer, []).append(head)
        self.seen: set[int] = set()

    def attend(self, layer: int, call: Call) -> Tensor:
        base = call.base()
        out = self.overwrite.attend(layer, call)
        touched = self.by_layer.get(layer, [])
        untouched = [h for h in range(out.shape[2]) if h not in touched]
        if not torch.equal(base[:, :, untouched], out[:, :, untouched]):
            raise HarnessHeadsError(f"self-check: layer {layer}: a head outside the set changed; do not trust scores")
        if touched:
            self.seen.add(layer)
        return out


def _check_local(engine: Engine, inputs: Mapping[str, Any], heads: Sequence[Head], action: Action) -> set[int]:
    ids = inputs["input_ids"]
    overwrite = Overwrite((Target(tuple(heads), action),), ids.device, ids.shape[1])
    local = _Local(overwrite, heads)
    with torch.no_grad(), installed(engine.model, engine.family), handling(local):
        engine.model(**forward_arguments(engine.model, inputs))
    missing = set(local.by_layer) - local.seen
    if missing:
        raise HarnessHeadsError(f"self-check: layer {min(missing)}: its attention never ran; heads there cannot act")
    condition, mass = action.condition, float(overwrite.mass[0])
    if condition.op == "mask" and not condition.keep_self and mass != 0.0:
        raise HarnessHeadsError(f"self-check: condition {condition.name}: masked keys kept attention mass {mass:.3g}")
    if condition.op == "steer" and not mass > 0.0:
        raise HarnessHeadsError(f"self-check: condition {condition.name}: the target got no attention")
    return local.seen


@dataclass(eq=False)
class _Dense:
    """Eager attention with the intervention, written from the definitions; float scores of all heads and rows."""

    heads: frozenset[Head]
    action: Action | None

    def attend(self, layer: int, call: Call) -> Tensor:
        groups = call.query.shape[1] // call.key.shape[1]
        key = call.key.repeat_interleave(groups, dim=1)
        value = call.value.repeat_interleave(groups, dim=1)
        half = call.query.dtype in (torch.float16, torch.bfloat16)  # fused kernels keep scores in float32
        scores = _scores(call.query.float(), key.float(), call) if half else _scores(call.query, key, call)
        visible = call.visible(torch.arange(scores.shape[-2], device=scores.device))
        probabilities = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0.0)
        touched = sorted(h.head for h in self.heads if h.layer == layer)
        if self.action is not None and touched:
            if self.action.condition.numerics == "bf16_round":
                scores = _scores(call.query.bfloat16(), key.bfloat16(), call)
            rows = self.action.rows.to(scores.device).nonzero()[:, 0]
            for head in touched:
                changed = _changed(scores[0, head, rows], visible[rows], rows, self.action)
                probabilities[0, head, rows] = changed.to(probabilities.dtype)
        out = probabilities.to(value.dtype) @ value
        return out.transpose(1, 2).contiguous()


def _scores(query: Tensor, key: Tensor, call: Call) -> Tensor:
    scores = (query @ key.transpose(2, 3)) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    return scores


def _changed(scores: Tensor, visible: Tensor, rows: Tensor, action: Action) -> Tensor:
    """Attention of the touched rows of one head, (R, K), from their scores and what they see."""
    condition = action.condition
    keys, others = action.keys.to(scores.device), action.others.to(scores.device)
    if condition.op == "ablate":
        share = visible.double() / visible.double().sum(-1, keepdim=True)
        return share if condition.ablation == "uniform" else torch.zeros_like(share)
    left = visible
    if condition.op == "mask":
        left = visible & ~keys
        if condition.keep_self:
            left[torch.arange(len(rows)), rows] = visible[torch.arange(len(rows)), rows]
    elif condition.beta == "hard":
        tier = torch.where(keys, 2, torch.where(others, 0, 1)).expand_as(visible)
        best = tier.masked_fill(~visible, -1).max(-1, keepdim=True).values
        left = visible & (tier == best)
    else:
        bias = torch.zeros(len(keys), dtype=torch.float64, device=scores.device)
        bias[keys], bias[others] = float(condition.beta or 0), -float(condition.beta or 0)
        scores = scores + bias.to(scores.dtype)
    scores = scores.to(torch.float64)
    return scores.masked_fill(~left, -torch.inf).softmax(-1).nan_to_num(0.0)


def _reference_logprobs(
    engine: Engine, inputs: Mapping[str, Any], heads: Sequence[Head], action: Action | None
) -> Tensor:
    dense = _Dense(frozenset(heads), action)
    with torch.no_grad(), installed(engine.model, engine.family), handling(dense):
        logits = engine.model(**forward_arguments(engine.model, inputs)).logits[0, -1]
    logprobs: Tensor = logits.to(torch.float64).log_softmax(-1)
    return logprobs


def _host_gap(engine: Engine, inputs: Mapping[str, Any], clean: Tensor) -> float:
    """How far the reference is from the host's own forward where nothing is done: what rounding alone makes."""
    with torch.no_grad():
        logits = engine.model(**forward_arguments(engine.model, inputs)).logits[0, -1]
    host = logits.to(torch.float64).log_softmax(-1)
    likely = (clean > LIKELY) & (host > LIKELY)
    return float((host - clean)[likely].abs().max())
