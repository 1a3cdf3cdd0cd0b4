"""Which lmms-eval chat classes we wrap, and under which names. No torch, no lmms-eval: the registry reads this."""

from __future__ import annotations

from dataclasses import dataclass

from harness_heads.conditions import Op
from harness_heads.errors import HarnessHeadsError, did_you_mean

PREFIXES: dict[str, Op] = {"masked": "mask", "steered": "steer", "ablated": "ablate"}


@dataclass(frozen=True)
class Host:
    """A chat class of lmms-eval.

    Attributes:
        model_id: lmms-eval's own name of it.
        class_name: the class inside ``lmms_eval.models.chat.<model_id>``.
        short: our names after the prefix; the first is the one that documents use.
        pretrained: what ``pretrained`` defaults to, ``None`` where the user must name it.
    """

    model_id: str
    class_name: str
    short: tuple[str, ...]
    pretrained: str | None = None

    @property
    def class_path(self) -> str:
        return f"lmms_eval.models.chat.{self.model_id}.{self.class_name}"


HOSTS: tuple[Host, ...] = (
    Host("qwen3_vl", "Qwen3_VL", ("qwen3vl", "qwen3_vl"), "Qwen/Qwen3-VL-8B-Instruct"),
    Host("qwen2_5_vl", "Qwen2_5_VL", ("qwen2_5_vl", "qwen25vl"), "Qwen/Qwen2.5-VL-7B-Instruct"),
    Host("qwen3_5", "Qwen3_5", ("qwen3_5", "qwen35"), "Qwen/Qwen3.5-9B"),
    Host("internvl_hf", "InternVLHf", ("internvl_hf", "internvl"), "OpenGVLab/InternVL3_5-8B-HF"),
    Host("llava_hf", "LlavaHf", ("llava_hf", "llava_next", "llava"), "llava-hf/llava-v1.6-mistral-7b-hf"),
    Host("phi4_multimodal", "Phi4", ("phi4_multimodal", "phi4"), "microsoft/Phi-4-multimodal-instruct"),
    # families without a chat class of their own in lmms-eval run through its generic one
    Host(
        "huggingface",
        "Huggingface",
        (
            "huggingface",
            "qwen2_vl",
            "llava_onevision",
            "gemma3",
            "gemma4",
            "paligemma2",
            "glm4v",
            "glm46v",
            "ovis2",
            "idefics3",
            "smolvlm",
            "deepseek_vl",
            "qwen3_vl_moe",
        ),
    ),
)


def host_of(model_id: str) -> Host:
    """The host with that lmms-eval name."""
    for host in HOSTS:
        if host.model_id == model_id:
            return host
    known = [host.model_id for host in HOSTS]
    raise HarnessHeadsError(f"no wrapped host {model_id!r}{did_you_mean(model_id, known)} (known: {', '.join(known)})")


def wrapper_name(prefix: str, host: Host) -> str:
    """The model name that users type, for example ``masked_qwen3vl``."""
    return f"{prefix}_{host.short[0]}"


def prefix_of(op: Op) -> str:
    """The class prefix that performs ``op``."""
    return next(prefix for prefix, performed in PREFIXES.items() if performed == op)
