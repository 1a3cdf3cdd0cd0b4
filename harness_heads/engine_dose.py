"""The dose: attention mass on a condition's keys before and after, from the passes that run anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from harness_heads.engine_batch import Outcome
from harness_heads.engine_handlers import UNMOVED, Record
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import HeadSet
from harness_heads.interventions import Action


def doses(
    record: Record, sets: Sequence[HeadSet], keys: Sequence[str], action: Action, number: int, outcome: Outcome
) -> dict[str, dict[str, float]]:
    """``{"before", "after"}`` per set key: mean over the set's heads and the prompt's rows in scope, in [0, 1].

    Args:
        record: of the clean pass.
        number: which of the record's key sets belongs to the action.
        outcome: of the intervened pass, row i for set i.

    Raises:
        HarnessHeadsError: if a set touched no row, or moved no attention at all.
    """
    in_scope = action.rows[record.rows.to(action.rows.device)]
    rows = int(in_scope.sum())
    means = mean_masses(record.masses, in_scope, number)
    found = {}
    for index, (key, heads) in enumerate(zip(keys, sets, strict=True)):
        if not len(heads):
            continue
        name = action.condition.name
        if not int(outcome.acted[index]):
            raise HarnessHeadsError(f"condition {name} on set {heads.name!r}: no row was touched; it did not act")
        before = sum(means[layer][head] for layer, head in heads) / len(heads)
        after = float(outcome.mass[index]) / (len(heads) * rows)
        if action.condition.op != "ablate" and abs(before - after) <= UNMOVED * max(before, after):
            raise HarnessHeadsError(
                f"condition {name} on set {heads.name!r}: attention mass did not move ({before:.3g} before and after); "
                "these heads cannot show an effect here"
            )
        found[key] = {"before": before, "after": after}
    return found


def mean_masses(masses: Mapping[int, Tensor], rows: Tensor, key_set: int) -> dict[int, list[float]]:
    """Per layer, mean over rows of every head's attention mass on one key set.

    Args:
        masses: per layer (H, R, G), as a clean pass's record leaves them.
        rows: which of the R recorded rows count; bool (R,).
    """
    return {layer: mass[:, rows.to(mass.device), key_set].double().mean(1).tolist() for layer, mass in masses.items()}
