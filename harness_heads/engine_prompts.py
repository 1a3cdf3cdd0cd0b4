"""The prompts of a batch as a forward brings them: per row, which tokens are its own and what is done to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from harness_heads.conditions import Condition
from harness_heads.engine_handlers import Target
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family
from harness_heads.heads import Head
from harness_heads.interventions import Action, resolve
from harness_heads.layouts import ImageTokens, PromptLayout, no_cells
from harness_heads.regions import Region


@dataclass(eq=False)
class Prompts:
    """Turns the arguments of a prefill into one target per batch row.

    Attributes:
        heads: head sets; one for every row, or one that all rows share.
        condition: what is done.
        regions, image_sizes: of the prompt; rows must then hold the same prompt.
    """

    model: nn.Module
    family: Family
    processor: Any
    heads: Sequence[tuple[Head, ...]]
    condition: Condition
    regions: Mapping[str, Region]
    image_sizes: Sequence[tuple[int, int]]

    def targets(self, arguments: Mapping[str, Any]) -> list[Target]:
        """One target per row of ``input_ids``, in padded positions."""
        ids: Tensor = arguments["input_ids"]
        mask = arguments.get("attention_mask")
        batch = ids.shape[0]
        if len(self.heads) not in (1, batch):
            raise HarnessHeadsError(f"generation: {len(self.heads)} head sets for a batch of {batch}; give one per row")
        found: list[Target] = []
        known: dict[tuple[int, ...], Action] = {}
        for row in range(batch):
            heads = self.heads[row % len(self.heads)]
            if not heads:
                found.append(Target((), None))
                continue
            tokens, pad = _unpadded(ids[row], None if mask is None else mask[row], row)
            key = (pad, *tokens.tolist())
            if key not in known:
                layout = self._layout(arguments, tokens, row)
                known[key] = resolve(self.condition, layout, self.regions).shifted(pad)
            found.append(Target(heads, known[key]))
        if self.condition.keys in self.regions and len({key[1:] for key in known}) > 1:
            raise HarnessHeadsError("generation: regions belong to one prompt, but the batch holds several")
        return found

    def _layout(self, arguments: Mapping[str, Any], tokens: Tensor, row: int) -> PromptLayout:
        if self.condition.keys in self.regions:
            return self.family.layout(self.model.config, arguments, self.image_sizes, self.processor, row)
        return coarse_layout(self.family, self.model.config, tokens, self.processor)


def coarse_layout(family: Family, config: Any, tokens: Tensor, processor: Any) -> PromptLayout:
    """Layout that knows which tokens are image tokens but not what they show; enough unless a region is named."""
    from harness_heads.families.turns import user_turn

    image = family.image_token(config)
    positions = (tokens == image).nonzero()[:, 0]
    images = (ImageTokens(positions, no_cells(len(positions)), None),) if len(positions) else ()
    turn = user_turn(tokens, processor, family.turn_start, family.turn_end, image)
    return PromptLayout(len(tokens), images, turn, family.may_look_ahead)


def _unpadded(ids: Tensor, mask: Tensor | None, row: int) -> tuple[Tensor, int]:
    """Tokens of one row without padding, and how many padding tokens stand before them."""
    if mask is None:
        return ids.cpu(), 0
    inside = mask.cpu().bool().nonzero()[:, 0]
    first, last = int(inside[0]), int(inside[-1])
    if last - first + 1 != len(inside):
        raise HarnessHeadsError(f"generation: the attention mask of row {row} has holes; pad on one side only")
    return ids.cpu()[first : last + 1], first


def same_prompt(ids: Tensor, arguments: Mapping[str, Any]) -> bool:
    """Whether all rows of a batch hold the same tokens and, where pixels are at hand, the same images."""
    if not bool((ids == ids[:1]).all()):
        return False
    for name, value in arguments.items():
        if name.startswith("pixel_values") and isinstance(value, Tensor) and ids.shape[0] > 1:
            # batched per row, or patches of all rows one after the other
            if value.shape[0] % ids.shape[0]:
                return False
            rows = value.reshape(ids.shape[0], -1)
            if not bool((rows == rows[:1]).all()):
                return False
    return True
