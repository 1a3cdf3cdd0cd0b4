"""Proof, on the loaded model and a real prompt, that interventions do what they say.

Six checks, made before anything is scored under a kind of condition that was not proved before. On the host's own
forward under the intervention:

* fired: in every layer that a set names, the function ran, and masked keys have mass exactly 0, steered ones more;
* untouched: on each layer's own input, the outputs of all untouched heads are bit-equal to the base kernel's.

On it, and on the pass that is scored with its sets together:

* local: on each layer's own input, all heads' outputs are those of the dense reference.

On the pass that is scored:

* rows: what is taken from the clean pass does not differ under the reference, and what is replayed for the empty set
  does not differ from the clean pass;
* reference: logits are those of a full forward with the dense reference in every layer, the empty set's too;
* dose: masses before and after are the reference's.

The reference is :mod:`harness_heads.verify_reference`. In 16 bits the logits of two right implementations differ by
much, and the local check is the sharper one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harness_heads.attention import Call, Handler, forward_arguments, handling, installed
from harness_heads.conditions import Condition
from harness_heads.engine_batch import Outcome
from harness_heads.engine_clean import Clean
from harness_heads.engine_handlers import Overwrite, Target
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head, HeadSet
from harness_heads.interventions import Action
from harness_heads.verify_beside import LOCAL, ROUNDED, Beside, Findings, local_tolerance, relative_gap
from harness_heads.verify_proof import Shown, kind
from harness_heads.verify_reference import Dense, DenseRow

if TYPE_CHECKING:
    from harness_heads.engine import Engine

Dose = Mapping[str, float]
# largest difference of log-probabilities to the reference, by dtype: kernels round differently, 16-bit ones much more;
# norms, rotary angles and linear attention of the hosts compute in float32 where the model is float64
TOLERANCE = {torch.float64: 1e-4, torch.float32: 2e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
# largest difference of a dose; in 16 bits that of one row moves by a tenth where layers before have rounded differently
DOSE = {torch.float64: 1e-4, torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
LIKELY = -10.0  # log-probability of tokens that are compared: rounding of improbable ones is not of interest
COMPARED = 50  # at least so many tokens are compared, the likeliest; a large vocabulary may hold none above LIKELY
SHARE = 0.5  # in 16 bits it is enough to lie nearer the reference than no intervention: there the local check is sharp
NOISE = 5.0  # the gap may be so many times what the reference differs from the host's own forward without intervention


@dataclass(eq=False)
class SelfCheck:
    """What has yet to be proved of one prompt's run: made before it, held to the reference after it.

    Attributes:
        wanted: (index of the set, condition) pairs to look at: sets until each layer that any set names is covered, and
            the last.
        findings: of the pass that is scored.
    """

    engine: Engine
    inputs: Mapping[str, Any]
    sets: Sequence[HeadSet]
    actions: Mapping[str, Action]
    wanted: list[tuple[int, str]]
    findings: Findings

    @classmethod
    def of(
        cls, engine: Engine, inputs: Mapping[str, Any], sets: Sequence[HeadSet], actions: Mapping[str, Action]
    ) -> SelfCheck | None:
        """The check of every kind of action that was not proved before; ``None`` if there is none.

        That each further set acts on each prompt is told by its dose (:mod:`harness_heads.engine_dose`).

        Raises:
            HarnessHeadsError: one line that names the layer, head or condition that fails in the host's own forward.
        """
        wanted: list[tuple[int, str]] = []
        kinds: set[Condition] = set()
        for name, action in actions.items():
            if kind(action.condition) in kinds:
                continue
            kinds.add(kind(action.condition))
            acting = [one for one in sets if len(one)]
            missing = engine.ledger.missing("prompt", acting, action.condition)
            if missing and not any(one is acting[-1] for one in missing):
                missing.append(acting[-1])  # outcomes that are shifted among the sets show at the end of the row
            wanted += [(next(i for i, one in enumerate(sets) if one is each), name) for each in missing]
        for index, name in wanted:
            _check_fired(engine, inputs, sets[index].heads, actions[name])
        looked = [(sets[index].heads, actions[name]) for index, name in wanted]
        return cls(engine, inputs, sets, actions, wanted, Findings(engine.kernel, looked)) if wanted else None

    def hold(
        self, clean: Clean, outcomes: Mapping[str, Outcome], first_rows: Mapping[str, int], doses: Sequence[Dose]
    ) -> None:
        """Hold what the run gave to the reference, and enter it in the ledger.

        Args:
            outcomes: per condition, row i for set i.
            first_rows: per condition, rows before it were taken from the clean pass.
            doses: per entry of ``wanted``.

        Raises:
            HarnessHeadsError: one line that names the condition that fails.
        """
        engine = self.engine
        rows = [DenseRow(frozenset(self.sets[i].heads), self.actions[name]) for i, name in self.wanted]
        plain = Dense([DenseRow()], reads=rows)
        base = _logprobs(engine, self.inputs, plain)
        noise = largest_gap(_log(clean.logits), base)
        _check_drift(self.findings.drift, clean, plain)
        empty = next(i for i, one in enumerate(self.sets) if not len(one))
        for number, (index, name) in enumerate(self.wanted):
            condition, dense = self.actions[name].condition, Dense([rows[number]])
            reference = _logprobs(engine, self.inputs, dense)
            compared(
                condition, f"{name}, the empty set", _log(outcomes[name].logits[empty]), base, base, engine.dtype, noise
            )
            shown = compared(condition, name, _log(outcomes[name].logits[index]), reference, base, engine.dtype, noise)
            _check_rows(name, first_rows[name], plain, dense)
            pairs = len(rows[number].heads) * int(self.actions[name].rows.sum())
            true = {"before": plain.read[number] / pairs, "after": dense.mass[0] / pairs}
            _check_dose(condition, engine.dtype, doses[number], true)
            gap, effect = self.findings.of(self.sets[index].heads, self.actions[name])
            tolerance = local_tolerance(engine.dtype, engine.kernel, condition)
            shown = replace(shown, local_gap=gap, local_effect=effect, local_tolerance=tolerance)
            engine.ledger.enter("prompt", [self.sets[index]], condition, shown)


def compared(
    condition: Condition,
    name: str,
    found: Tensor,
    reference: Tensor,
    clean: Tensor,
    dtype: torch.dtype,
    host_gap: float,
) -> Shown:
    """Log-probabilities (..., V) of the engine against those of the reference, under the condition and clean.

    Args:
        host_gap: how far the reference is from the host's own forward where nothing is done.

    Raises:
        HarnessHeadsError: if they differ by more than the tolerance, or are no numbers.
    """
    tolerance = max(TOLERANCE.get(dtype, 0.5), NOISE * host_gap)
    if condition.numerics == "bf16_round":
        tolerance = max(tolerance, TOLERANCE[torch.bfloat16])
    gap, effect = largest_gap(found, reference), largest_gap(clean, reference)
    if dtype in (torch.bfloat16, torch.float16):
        tolerance = max(tolerance, SHARE * effect)
    if not gap <= tolerance:
        raise HarnessHeadsError(
            f"self-check: condition {name} differs from the dense reference by {gap:.3g} in log-probability "
            f"(tolerance {tolerance:g}); do not trust scores of this model"
        )
    return Shown(name, gap, effect, tolerance)


def largest_gap(found: Tensor, reference: Tensor) -> float:
    """Largest difference over the tokens that are likely under the reference; not-a-number where either holds one."""
    border = reference.topk(min(COMPARED, reference.shape[-1])).values[..., -1:].clamp(max=LIKELY)
    gaps = (found - reference).abs()[reference >= border]
    return float(gaps.max()) if len(gaps) and not bool(reference.isnan().any()) else float("nan")


class _Untouched:
    """Acts as the engine does and compares the heads outside the set with the base kernel on the same input."""

    def __init__(self, handler: Handler, heads: Sequence[Head]) -> None:
        self.handler = handler
        self.by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            self.by_layer.setdefault(layer, []).append(head)
        self.seen: set[int] = set()

    def attend(self, layer: int, call: Call) -> Tensor:
        base = call.base()
        out = self.handler.attend(layer, call)
        touched = self.by_layer.get(layer, [])
        untouched = [h for h in range(out.shape[2]) if h not in touched]
        if not torch.equal(base[:, :, untouched], out[:, :, untouched]):
            raise HarnessHeadsError(f"self-check: layer {layer}: a head outside the set changed; do not trust scores")
        self.seen.add(layer)
        return out


def _check_fired(engine: Engine, inputs: Mapping[str, Any], heads: Sequence[Head], action: Action) -> None:
    """The checks of the host's own forward."""
    ids, condition = inputs["input_ids"], action.condition
    overwrite = Overwrite((Target(tuple(heads), action),), ids.device, ids.shape[1])
    looking = _Untouched(Beside(overwrite, lambda: overwrite.targets, Findings(engine.kernel)), heads)
    with torch.no_grad(), installed(engine.model, engine.family), handling(looking):
        engine.model(**forward_arguments(engine.model, inputs))
    missing = set(looking.by_layer) - looking.seen
    if missing:
        raise HarnessHeadsError(f"self-check: layer {min(missing)}: its attention never ran; heads there cannot act")
    mass = float(overwrite.mass[0])
    if condition.op == "mask" and not condition.keep_self and mass != 0.0:
        raise HarnessHeadsError(f"self-check: condition {condition.name}: masked keys kept attention mass {mass:.3g}")
    if condition.op == "steer" and not mass > 0.0 and not bool(action.others.any()):
        raise HarnessHeadsError(f"self-check: condition {condition.name}: the target got no attention")


def _check_drift(drift: Mapping[int, float], clean: Clean, plain: Dense) -> None:
    """Rows that are replayed under the empty set are the clean pass's, but for what rounding makes."""
    noise = max((relative_gap(clean.record.kept[layer][0], plain.keys[layer]) for layer in drift), default=0.0)
    for layer, gap in drift.items():
        tolerance = max(LOCAL.get(plain.keys[layer].dtype, 0.02), NOISE * noise)
        if not gap <= tolerance:
            raise HarnessHeadsError(
                f"self-check: layer {layer}: rows replayed for the empty set differ from the clean pass's by {gap:.3g} "
                f"of the largest key (tolerance {tolerance:.3g}); do not trust scores of this model"
            )


def _check_rows(name: str, first_row: int, plain: Dense, under: Dense) -> None:
    """Keys of rows that are taken from the clean pass are the same under the intervention."""
    for layer, keys in plain.keys.items():
        before, after = (kept[:, :, :first_row].double() for kept in (keys, under.keys[layer]))
        gap = float((before - after).abs().max()) / (float(keys.double().abs().max()) or 1.0) if first_row else 0.0
        if not gap <= LOCAL.get(keys.dtype, 0.02):
            raise HarnessHeadsError(
                f"self-check: condition {name}: layer {layer}: rows before {first_row} were taken from the clean pass, "
                f"but differ by {gap:.3g} of the largest key under the dense reference; do not trust scores"
            )


def _check_dose(condition: Condition, dtype: torch.dtype, found: Dose, true: Dose) -> None:
    """Masses before and after are the reference's."""
    tolerance = max(DOSE.get(dtype, 0.15), ROUNDED if condition.numerics == "bf16_round" else 0.0)
    for when, mass in true.items():
        if not abs(found[when] - mass) <= tolerance:
            raise HarnessHeadsError(
                f"self-check: condition {condition.name}: its dose {when} is {found[when]:.4g}, and {mass:.4g} in the "
                f"dense reference (tolerance {tolerance:g}); do not trust doses of this model"
            )


def _logprobs(engine: Engine, inputs: Mapping[str, Any], dense: Dense) -> Tensor:
    with torch.no_grad(), installed(engine.model, engine.family), handling(dense):
        return _log(engine.model(**forward_arguments(engine.model, inputs)).logits[0, -1])


def _log(logits: Tensor) -> Tensor:
    return logits.to(torch.float64).log_softmax(-1)
