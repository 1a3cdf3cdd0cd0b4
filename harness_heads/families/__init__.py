"""Model families by ``config.model_type``."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.families.base import Family, PromptInputs
from harness_heads.families.deepseek import DEEPSEEK_VL
from harness_heads.families.gemma import GEMMA3, GEMMA4, PALIGEMMA
from harness_heads.families.glm import GLM4V
from harness_heads.families.idefics import IDEFICS3
from harness_heads.families.internvl import INTERNVL
from harness_heads.families.llava import LLAVA, LLAVA_NEXT, LLAVA_ONEVISION
from harness_heads.families.ovis import OVIS2
from harness_heads.families.phi import PHI4
from harness_heads.families.qwen import QWEN2_5_VL, QWEN2_VL, QWEN3_5, QWEN3_VL

__all__ = ["FAMILIES", "REFUSED", "Family", "PromptInputs", "family_of"]

FAMILIES: tuple[Family, ...] = (
    QWEN2_VL,
    QWEN2_5_VL,
    QWEN3_VL,
    QWEN3_5,
    INTERNVL,
    LLAVA,
    LLAVA_NEXT,
    LLAVA_ONEVISION,
    GEMMA3,
    GEMMA4,
    PALIGEMMA,
    GLM4V,
    OVIS2,
    IDEFICS3,
    DEEPSEEK_VL,
    PHI4,
)

REFUSED = {
    "mllama": "its image keys live in cross-attention layers and no image token is in the sequence, so masks by "
    "position would be silent no-ops",
}
"""Model types that cannot be right, with the reason."""


def family_of(model: Any) -> Family:
    """The family of a loaded model.

    Raises:
        HarnessHeadsError: one sentence, for a model type that is refused or unknown, or a wrapper around a model.
    """
    if not hasattr(model, "config"):
        raise HarnessHeadsError(f"{type(model).__name__} is no transformers model; give what from_pretrained loaded")
    model_type = str(getattr(model.config, "model_type", ""))
    if model_type in REFUSED:
        raise HarnessHeadsError(f"model type {model_type!r} is refused: {REFUSED[model_type]}")
    known = {name: family for family in FAMILIES for name in family.model_types}
    if model_type not in known:
        raise HarnessHeadsError(
            f"model type {model_type!r} has no family entry{did_you_mean(model_type, known)} "
            f"(supported: {', '.join(sorted(known))})"
        )
    if not isinstance(model, PreTrainedModel):
        # a wrapper's forward need not be the one that runs, and takes other arguments than the model's own
        raise HarnessHeadsError(
            f"{type(model).__name__} is no transformers model; if it wraps one, give that: model.get_base_model() of a "
            "PEFT model (its adapters stay active), model.module of a parallel one"
        )
    return known[model_type]
