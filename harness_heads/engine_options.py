"""Log-probabilities of the options at the final row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family


def option_tokens(family: Family, processor: Any, options: Sequence[str]) -> dict[str, Tensor]:
    """Token ids of each option's surface forms; long (n,).

    Raises:
        HarnessHeadsError: if two options share a token: its probability would count for both.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    found = {option: family.option_ids(tokenizer, option) for option in options}
    owner: dict[int, str] = {}
    for option, ids in found.items():
        for token in ids.tolist():
            if owner.setdefault(token, option) != option:
                raise HarnessHeadsError(
                    f"options {owner[token]!r} and {option!r} share the token {token}; give options that differ"
                )
    return found


def without_padding(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of one prompt without its padding tokens."""
    mask = inputs.get("attention_mask")
    if mask is None or bool(mask.all()):
        return dict(inputs)
    shape, inside = inputs["input_ids"].shape, mask[0].bool()
    return {
        name: value[:, inside.to(value.device)] if isinstance(value, Tensor) and value.shape == shape else value
        for name, value in inputs.items()
    }


def with_answer_prefix(family: Family, processor: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs whose prompt ends with the family's answer prefix, after which a letter can follow."""
    if not family.answer_prefix:
        return dict(inputs)
    tokenizer = getattr(processor, "tokenizer", processor)
    ids = inputs["input_ids"]
    prefix = torch.tensor([tokenizer.encode(family.answer_prefix, add_special_tokens=False)]).to(ids)
    extended = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor) and value.shape == ids.shape:
            added = {"input_ids": prefix, "attention_mask": torch.ones_like(prefix)}.get(name, torch.zeros_like(prefix))
            extended[name] = torch.cat([value, added.to(value.dtype)], dim=1)
    return extended


def option_logprobs(logits: Tensor, tokens: Mapping[str, Tensor]) -> list[dict[str, float]]:
    """Natural log-probability of every option over the whole vocabulary, surface forms summed.

    Args:
        logits: (B, V); normalised in float32, or in float64 for float64 models.
    """
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    logprobs = logits.to(dtype).log_softmax(-1)
    columns = {option: logprobs[:, ids.to(logits.device)].logsumexp(-1).tolist() for option, ids in tokens.items()}
    return [{option: column[row] for option, column in columns.items()} for row in range(logits.shape[0])]


def total_mass(logprobs: Mapping[str, float]) -> float:
    """Probability of all options together."""
    return float(sum(torch.tensor(value, dtype=torch.float64).exp() for value in logprobs.values()))
