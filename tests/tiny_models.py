"""Tiny random-weight models of every supported family, with raw inputs made by hand.

No processor is involved: a :class:`Case` holds token ids, pixels and sizes in the form the family's processor would
produce, and a tokenizer of a few words. Query and key weights are scaled up so that attention is far from uniform and
every intervention has a large effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

VOCAB = 120
IMAGE, VISION_START, VISION_END, VIDEO = 100, 101, 102, 103
BOS, TURN_START, USER, TURN_END, ASSISTANT = 1, 2, 3, 4, 5
WORDS = {"A": 11, " A": 12, "B": 13, " B": 14, "C": 15, "D": 16}


class Words:
    """A tokenizer of a few words."""

    markers: Mapping[str, list[int]] = {
        "<|im_start|>user": [TURN_START, USER],
        "<|im_end|>": [TURN_END],
        "<start_of_turn>user": [TURN_START, USER],
        "<end_of_turn>": [TURN_END],
    }

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        if text in self.markers:
            return list(self.markers[text])
        return [WORDS[text]] if text in WORDS else [20, 21, 22]


@dataclass
class Case:
    """A model, one prompt for it, and what the prompt shows."""

    name: str
    model: Any
    inputs: dict[str, Any]
    sizes: list[tuple[int, int]]
    tokenizer: Words = field(default_factory=Words)


def sharpen(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Random weights under which attention is peaked: queries and keys of std 2/sqrt(width), everything else 0.05."""
    draw = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=draw)
        if parameter.ndim < 2:
            is_norm = "norm" in name and "bias" not in name
            parameter.data = (1.0 if is_norm else 0.0) + 0.1 * values
        elif any(part in name for part in ("q_proj", "k_proj", "qkv_proj")):
            parameter.data = values * 2.0 / parameter.shape[-1] ** 0.5
        else:
            parameter.data = values * 1.0 / parameter.shape[-1] ** 0.5 if parameter.ndim == 2 else values * 0.1
    return model


def prompt_ids(image_runs: list[list[int]], question: int = 9, seed: int = 0) -> Tensor:
    """BOS, some system text, a user turn with the image runs and a question, the template's tail; long (1, T)."""
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(30, 90, (question,), generator=draw).tolist()
    ids = [BOS, 40, 41, TURN_START, USER]
    for run in image_runs:
        ids += [VISION_START, *run, VISION_END]
    ids += [*words, TURN_END, TURN_START, ASSISTANT]
    return torch.tensor([ids])


TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": BOS,
    "eos_token_id": TURN_END,
}


def qwen3_vl(images: int = 1, seed: int = 0) -> Case:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2], "mrope_interleaved": True}
    config = Qwen3VLConfig(
        text_config={**TEXT, "rope_parameters": rope},
        vision_config={
            "depth": 3, "hidden_size": 32, "intermediate_size": 32, "num_heads": 4, "patch_size": 4,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 32, "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
    )  # fmt: skip
    model = Qwen3VLForConditionalGeneration(config)
    return merged_grid_case("qwen3_vl", model, images, seed, patch=4)


def merged_grid_case(name: str, model: Any, images: int, seed: int, patch: int) -> Case:
    """Prompt for families with ``image_grid_thw``: grids of 2 x 3 and 2 x 2 tokens."""
    grids = [(1, 4, 6), (1, 4, 4)][:images]
    ids = prompt_ids([[IMAGE] * (h * w // 4) for _, h, w in grids], seed=seed)
    draw = torch.Generator().manual_seed(seed + 1)
    count = sum(h * w for _, h, w in grids)
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(count, 3 * 2 * patch * patch, generator=draw),
        "image_grid_thw": torch.tensor(grids),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }
    return Case(name, sharpen(model, seed).eval(), inputs, [(w * patch, h * patch) for _, h, w in grids])


BUILDERS: dict[str, Callable[..., Case]] = {"qwen3_vl": qwen3_vl}


def build(name: str, images: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32) -> Case:
    """The tiny model of a family with its prompt, pixels in ``dtype``."""
    case = BUILDERS[name](images, seed)
    case.model.to(dtype)
    case.inputs = {
        k: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in case.inputs.items()
    }
    return case
