"""The engine's own pass held to the dense reference, layer by layer and each on its own input.

Errors of one layer are compared before later layers multiply them, so that this test is sharp in 16 bits too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from harness_heads.attention import Call, Handler
from harness_heads.conditions import Condition
from harness_heads.engine_handlers import Overwrite, Record, Target
from harness_heads.engine_prefix import KeysOnly, ReplayHandler
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Head
from harness_heads.interventions import Action
from harness_heads.verify_reference import Dense, DenseRow

# largest difference of a head's output on the same input, as a share of the largest value it can output
LOCAL = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.02, torch.float16: 0.005}
ROUNDED = 0.25  # where scores are rounded to 16 bits: one that falls to the other side of a step moves by up to that
Looked = tuple[tuple[Head, ...], Action]
Key = tuple[tuple[Head, ...], int]  # heads and identity of the action


def local_tolerance(dtype: torch.dtype, kernel: str, condition: Condition | None) -> float:
    """What the output of a head under a condition, or under none, is held to.

    The hosts' eager kernels keep the scores of 16-bit models in 16 bits, and probabilities in float32 at most.
    """
    if condition is not None and condition.op == "ablate" and condition.ablation == "zero":
        return 0.0
    half = dtype in (torch.bfloat16, torch.float16)
    if condition is None and kernel == "eager":
        return ROUNDED if half else LOCAL[torch.float32]
    return ROUNDED if condition is not None and condition.numerics == "bf16_round" else LOCAL.get(dtype, 0.02)


@dataclass(eq=False)
class Findings:
    """What was seen of some sets under some actions.

    Attributes:
        kernel: the base kernel's name.
        looked: heads and action of the batch rows that are compared, ``None`` for all; a row where nothing is done is
            compared too.
        gaps, effects: largest gap of a touched head's output, and largest change of it.
        layers: layers in which touched heads were compared.
        drift: per layer, how far the keys of replayed rows under the empty set are from the clean pass's, as a share of
            the largest: what is done between layers (projections, positions, deepstack features) shows there.
    """

    kernel: str
    looked: Sequence[Looked] | None = None
    gaps: dict[Key, float] = field(default_factory=dict)
    effects: dict[Key, float] = field(default_factory=dict)
    layers: dict[Key, set[int]] = field(default_factory=dict)
    drift: dict[int, float] = field(default_factory=dict)

    def around(self, record: Record) -> Callable[[Overwrite | ReplayHandler], Handler]:
        """Wraps the handler of one batch; ``record`` is the clean pass's, for the prefix of replayed rows."""

        def watch(handler: Overwrite | ReplayHandler) -> Handler:
            replayed = isinstance(handler, ReplayHandler)
            return Beside(
                handler, lambda: handler.targets, self, record if replayed else None, getattr(handler, "first_row", 0)
            )

        return watch

    def rows(self, targets: Sequence[Target]) -> list[int]:
        """Which of the batch rows are compared: those looked at, and the first without an action."""
        wanted = None if self.looked is None else {(heads, id(action)) for heads, action in self.looked}
        acting = [row for row, target in enumerate(targets) if target.action is not None]
        if wanted is not None:
            acting = [row for row in acting if (targets[row].heads, id(targets[row].action)) in wanted]
        return acting + [row for row, target in enumerate(targets) if target.action is None][:1]

    def of(self, heads: tuple[Head, ...], action: Action) -> tuple[float, float]:
        """Gap and effect of one set under one action.

        Raises:
            HarnessHeadsError: if a layer that the set names was never compared.
        """
        key = (heads, id(action))
        missing = {head.layer for head in heads} - self.layers.get(key, set())
        if missing:
            raise HarnessHeadsError(
                f"self-check: layer {min(missing)}: its attention never ran under condition {action.condition.name}; "
                "heads there cannot act"
            )
        return self.gaps[key], self.effects[key]


@dataclass(eq=False)
class Beside:
    """Attends as ``handler`` does and compares chosen batch rows with the reference on the same keys and values."""

    handler: Handler
    targets: Callable[[], Sequence[Target]]
    findings: Findings
    record: Record | None = None
    first_row: int = 0
    final: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    dense: dict[int, tuple[Dense, Dense]] = field(default_factory=dict)

    def attend(self, layer: int, call: Call) -> Tensor:
        try:
            out = self.handler.attend(layer, call)
        except KeysOnly as reached:  # the final layer comes twice: all keys and values, then one row
            self.final[layer] = (reached.key, reached.value)
            raise
        targets = self.targets()
        own = self.final.get(layer, (call.key, call.value))
        for row in self.findings.rows(targets[: call.query.shape[0]]):
            if self.record is not None and targets[row].action is None:
                kept = self.record.kept[layer][0][0, :, self.first_row :]
                gap = relative_gap(own[0][row], kept)
                self.findings.drift[layer] = max(self.findings.drift.get(layer, 0.0), gap)
            self._compare(layer, row, targets[row], self._one(layer, call, row, own), out[row : row + 1])
        return out

    def _one(self, layer: int, call: Call, row: int, own: tuple[Tensor, Tensor]) -> Call:
        """The call of one batch row over all its keys, under the mask that the model itself made."""
        key, value = (kept[row : row + 1] for kept in own)
        mask = call.mask
        if self.record is not None:
            before_key, before_value = (kept[:, :, : self.first_row] for kept in self.record.kept[layer])
            key, value = torch.cat([before_key, key], 2), torch.cat([before_value, value], 2)
            mask = self.record.masks[layer]
        if mask is not None:
            at = min(row, mask.shape[0] - 1)
            mask = mask[at : at + 1, :, mask.shape[2] - call.query.shape[2] :]
        return replace(call, query=call.query[row : row + 1], key=key, value=value, mask=mask)

    def _compare(self, layer: int, row: int, target: Target, call: Call, out: Tensor) -> None:
        action, heads = target.action, target.heads if target.action else ()
        if row not in self.dense:
            self.dense[row] = (Dense([DenseRow(frozenset(heads), action)]), Dense([DenseRow()]))
        changed, plain = (dense.attend(layer, call).double()[0] for dense in self.dense[row])
        queries, end = call.query.shape[2], self.dense[row][0].seen[layer]
        touched = torch.zeros(changed.shape[:2], dtype=torch.bool, device=out.device)  # (Q, H)
        if action is not None:
            in_scope = action.to(out.device).touches(torch.arange(end - queries, end, device=out.device))
            for head in heads:
                if head.layer == layer:
                    touched[:, head.head] = in_scope
        # kernels differ on rows that see nothing
        sees = call.visible(torch.arange(queries, device=out.device)).any(-1)[:, None]
        scale, dtype = float(call.value.double().abs().max()) or 1.0, call.value.dtype
        gaps, effects = ((other - changed).abs().amax(-1) / scale for other in (out[0].double(), plain))
        tolerance = local_tolerance(dtype, self.findings.kernel, None)
        _hold(_largest(gaps, sees & ~touched), tolerance, f"layer {layer}: an untouched head", dtype)
        if action is None or all(head.layer != layer for head in heads):
            return
        name, key, gap = action.condition.name, (heads, id(action)), _largest(gaps, sees & touched)
        tolerance = local_tolerance(dtype, self.findings.kernel, action.condition)
        _hold(gap, tolerance, f"condition {name}: layer {layer}: a touched head", dtype)
        self.findings.gaps[key] = max(self.findings.gaps.get(key, 0.0), gap)
        self.findings.effects[key] = max(self.findings.effects.get(key, 0.0), _largest(effects, sees & touched))
        self.findings.layers.setdefault(key, set()).add(layer)


def relative_gap(found: Tensor, true: Tensor) -> float:
    """Largest difference as a share of the largest true value."""
    return float((found.double() - true.double()).abs().max()) / (float(true.double().abs().max()) or 1.0)


def _largest(values: Tensor, chosen: Tensor) -> float:
    """Largest of the chosen values, 0 where none is; not-a-number if one of them is."""
    found = values[chosen]
    return float(found.max()) if len(found) else 0.0


def _hold(gap: float, tolerance: float, subject: str, dtype: torch.dtype) -> None:
    if not gap <= tolerance:  # not-a-number fails too
        raise HarnessHeadsError(
            f"self-check: {subject}'s output differs from the dense reference by {gap:.3g} of the largest value on the "
            f"same input (tolerance {tolerance:g} in {dtype}); do not trust scores of this model"
        )
