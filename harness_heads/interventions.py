"""Interventions: a condition resolved on one prompt, in token positions.

A :class:`~harness_heads.conditions.Condition` says what is done in words (``mask`` the ``image`` keys on ``question``
rows). An :class:`Action` says the same on one prompt: which query rows it touches, which keys it cuts or biases. Heads
are no part of it, so that one action serves many head sets; an :class:`Intervention` is the pair of both.

The semantics of the four operations, for one head and one query row with visible keys V (after the model's own mask):

* mask: softmax over V minus the action's keys. A row that is left without any key outputs zero.
* steer, finite beta: score + beta on the action's keys, score - beta on every other image token, text as it is.
* steer, ``hard``: the limit of beta to infinity. The row attends to the visible keys of the highest bias alone: the
  target if it sees any of it, else the text, else the other image tokens.
* ablate: the head's output is zero (``zero``), or the mean of the visible values (``uniform``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness_heads.conditions import Condition
from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.heads import Head
from harness_heads.regions import Region

if TYPE_CHECKING:
    from harness_heads.layouts import PromptLayout


@dataclass(frozen=True)
class Intervention:
    """What is done (``condition``) to which heads."""

    heads: tuple[Head, ...]
    condition: Condition


@dataclass(frozen=True, eq=False)
class Action:
    """A condition on one prompt.

    Attributes:
        condition: what it came from.
        rows: query positions of the prompt that it touches; bool, shape (T,).
        generated: whether rows of generated tokens (positions >= T) are touched too.
        keys: key positions of the condition (cut by mask, raised by steer; measured by the dose); bool, shape (T,).
        others: image tokens that steering lowers; bool, shape (T,).
    """

    condition: Condition
    rows: Tensor
    generated: bool
    keys: Tensor
    others: Tensor

    @property
    def length(self) -> int:
        """Tokens of the prompt."""
        return int(self.rows.shape[0])

    @property
    def first_row(self) -> int:
        """First prompt row that is touched; the prompt's length if none is."""
        touched = self.rows.nonzero()
        return int(touched[0]) if len(touched) else self.length

    def touches(self, positions: Tensor) -> Tensor:
        """Whether each query position (long, any shape) is touched; generated rows lie beyond the prompt."""
        return _at(self.rows, positions, self.generated)

    def keys_at(self, positions: Tensor) -> Tensor:
        """Whether each key position (long) is one of the condition's keys; bool."""
        return _at(self.keys, positions, False)

    def others_at(self, positions: Tensor) -> Tensor:
        """Whether each key position (long) is an image token that steering lowers; bool."""
        return _at(self.others, positions, False)

    def allowed(self, row_positions: Tensor, key_positions: Tensor, visible: Tensor) -> Tensor:
        """Keys that each row may still attend to, where the operation is a pure cut (mask, hard steering).

        Args:
            row_positions: long (R,).  key_positions: long (K,).  visible: bool (..., R, K), the model's own mask.

        Returns:
            bool, shape of ``visible``; all False in rows that are left without a key.
        """
        keys = self.keys_at(key_positions)
        if self.condition.op == "mask":
            allowed = visible & ~keys
            if self.condition.keep_self:
                allowed = allowed | (visible & (row_positions[:, None] == key_positions[None, :]))
            return allowed
        others = self.others_at(key_positions)
        target, text = visible & keys, visible & ~(keys | others)
        sees_target, sees_text = target.any(-1, keepdim=True), text.any(-1, keepdim=True)
        # of the visible keys only those of the highest bias survive the limit
        return torch.where(sees_target, target, torch.where(sees_text, text, visible))

    def bias(self, key_positions: Tensor) -> Tensor:
        """Score that finite steering adds to each key; float64, shape of ``key_positions``."""
        beta = self.condition.beta
        if not isinstance(beta, int | float):
            raise HarnessHeadsError(f"condition {self.condition.name}: has no finite beta to add")
        up, down = self.keys_at(key_positions), self.others_at(key_positions)
        return beta * (up.double() - down.double())

    def shifted(self, by: int) -> Action:
        """The same action on a prompt that is padded on the left by ``by`` tokens."""
        if by == 0:
            return self

        def pad(flags: Tensor) -> Tensor:
            return torch.cat([flags.new_zeros(by), flags])

        return Action(self.condition, pad(self.rows), self.generated, pad(self.keys), pad(self.others))

    def to(self, device: torch.device) -> Action:
        """The same action with its flags on ``device``."""
        if self.rows.device == device:
            return self
        flags = (self.rows.to(device), self.keys.to(device), self.others.to(device))
        return Action(self.condition, flags[0], self.generated, flags[1], flags[2])


def resolve(condition: Condition, layout: PromptLayout, regions: Mapping[str, Region]) -> Action:
    """The action of ``condition`` on a prompt.

    Raises:
        HarnessHeadsError: if it could not act there: an unknown region, no row in scope, no key, no (row, key) pair.
    """
    name, length = condition.name, layout.length
    for taken in ("image", "text", ""):
        if taken in regions:
            raise HarnessHeadsError(f"condition {name}: a region cannot be called {taken!r}; give it another name")
    generated = condition.phase != "prefill" and condition.rows == ("all",)
    rows = torch.zeros(length, dtype=torch.bool)
    if condition.phase != "decode":
        rows[layout.rows(condition.rows)] = True
    if not generated and not bool(rows.any()):
        raise HarnessHeadsError(f"condition {name}: no row in scope, so it cannot act on this prompt")
    keys, others = torch.zeros_like(rows), torch.zeros_like(rows)
    keys[_key_positions(condition, layout, regions)] = True
    if condition.op == "steer":
        if condition.keys == "text":
            raise HarnessHeadsError(f"condition {name}: steer needs a region or 'image' as keys, text stays untouched")
        if condition.beta == "hard" and condition.numerics == "bf16_round":
            raise HarnessHeadsError(f"condition {name}: bf16_round rounds score + beta, so beta must be finite")
        others[layout.image_positions] = True
        others &= ~keys
    if condition.op != "ablate":
        if not bool(keys.any()):
            raise HarnessHeadsError(f"condition {name}: the prompt holds no {condition.keys} token")
        last_row = length if generated else int(rows.nonzero()[-1])
        if not layout.may_look_ahead and int((keys | others).nonzero()[0]) > last_row:
            raise HarnessHeadsError(f"condition {name}: every key lies after the last row in scope; it cannot act")
    return Action(condition, rows, generated, keys, others)


def _key_positions(condition: Condition, layout: PromptLayout, regions: Mapping[str, Region]) -> Tensor:
    if condition.keys == "image":
        return layout.image_positions
    if condition.keys == "text":
        return layout.text_positions
    if condition.keys in regions:
        return layout.region_tokens(regions[condition.keys], name=condition.keys)
    if condition.op == "ablate" and not condition.keys:
        return layout.image_positions
    known = ["image", "text", *regions]
    raise HarnessHeadsError(
        f"condition {condition.name}: no region {condition.keys!r}{did_you_mean(condition.keys, known)} "
        f"(known: {', '.join(known)})"
    )


def _at(flags: Tensor, positions: Tensor, beyond: bool) -> Tensor:
    """``flags`` at ``positions``; ``beyond`` for positions past the prompt."""
    length = flags.shape[0]
    inside = positions < length
    picked = flags[positions.clamp(max=length - 1)]
    return torch.where(inside, picked, torch.full_like(picked, beyond))
