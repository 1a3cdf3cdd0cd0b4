"""The dose: attention mass on a condition's keys before and after, from the passes that run anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from harness_heads.engine_batch import Outcome
from harness_heads.engine_handlers import UNMOVED, Record, moved_beside
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import HeadSet
from harness_heads.interventions import Action


def key_sets(actions: Sequence[Action]) -> Tensor:
    """What a clean pass records, bool (T, G): the keys of every action, then what the steering ones lower."""
    return torch.stack([a.keys for a in actions] + [a.others for a in actions if a.condition.op == "steer"], 1)


def doses(
    record: Record,
    sets: Sequence[HeadSet],
    keys: Sequence[str],
    actions: Sequence[Action],
    number: int,
    outcome: Outcome,
) -> dict[str, dict[str, float]]:
    """``{"before", "after"}`` per set key: mean over the set's heads and the prompt's rows in scope, in [0, 1].

    Args:
        record: of the clean pass.
        actions: all that were recorded.
        number: which of them the doses are of.
        outcome: of the intervened pass, row i for set i.

    Raises:
        HarnessHeadsError: if a set touched no row, or moved no attention at all.
    """
    action = actions[number]
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
        still = action.condition.op != "ablate" and abs(before - after) <= UNMOVED * max(before, after)
        if still and not _moved_beside(record, heads, actions, number, in_scope):
            raise HarnessHeadsError(
                f"condition {name} on set {heads.name!r}: attention mass did not move ({before:.3g} before and after); "
                "these heads cannot show an effect here"
            )
        found[key] = {"before": before, "after": after}
    return found


def _moved_beside(record: Record, heads: HeadSet, actions: Sequence[Action], number: int, in_scope: Tensor) -> bool:
    """Whether some head moved attention that the mass on the action's keys does not tell."""
    action = actions[number]
    steering = [i for i, other in enumerate(actions) if other.condition.op == "steer"]
    column = len(actions) + steering.index(number) if number in steering else number
    positions = record.rows.to(in_scope.device)[in_scope]
    # in causal order a row sees another key if one stands before it
    alone = positions <= int(action.keys.nonzero()[0])
    for layer, head in heads:
        masses = record.masses[layer][head].to(in_scope.device)[in_scope]
        if bool(moved_beside(action, masses[:, number], masses[:, column], alone).any()):
            return True
    return False


def mean_masses(masses: Mapping[int, Tensor], rows: Tensor, key_set: int) -> dict[int, list[float]]:
    """Per layer, mean over rows of every head's attention mass on one key set.

    Args:
        masses: per layer (H, R, G), as a clean pass's record leaves them.
        rows: which of the R recorded rows count; bool (R,).
    """
    return {layer: mass[:, rows.to(mass.device), key_set].double().mean(1).tolist() for layer, mass in masses.items()}
