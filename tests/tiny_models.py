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
        "<end_of_utterance>": [TURN_END],
        "<|user|>": [TURN_START, USER],
        "<|assistant|>": [TURN_END],
        "<|end|>": [TURN_END],
        "User:": [TURN_START, USER],
        "Assistant:": [TURN_END],
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


PLAIN = {key: value for key, value in TEXT.items() if key != "head_dim"}
"""Decoders whose head width is hidden size over heads."""


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


def qwen3_vl_moe(images: int = 1, seed: int = 0) -> Case:
    from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2], "mrope_interleaved": True}
    moe = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1}
    config = Qwen3VLMoeConfig(
        text_config={**TEXT, **moe, "rope_parameters": rope},
        vision_config=qwen_vision(deepstack_visual_indexes=[0, 1], num_position_embeddings=64),
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
    )  # fmt: skip
    model = Qwen3VLMoeForConditionalGeneration(config)
    model.set_experts_implementation("eager")  # grouped products know no float64
    return merged_grid_case("qwen3_vl_moe", model, images, seed, patch=4)


def qwen_vision(**extra: Any) -> dict[str, Any]:
    """Three vision blocks of width 32 on patches of 4 pixels."""
    return {
        "depth": 3, "hidden_size": 32, "intermediate_size": 32, "num_heads": 4, "patch_size": 4,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 32, **extra,
    }  # fmt: skip


def qwen2_vl(images: int = 1, seed: int = 0) -> Case:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    config = Qwen2VLConfig(
        text_config={
            **PLAIN, "hidden_size": 48,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2]},
        },
        vision_config={
            "depth": 2, "embed_dim": 32, "hidden_size": 48, "mlp_ratio": 2, "num_heads": 4, "patch_size": 4,
            "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
    )  # fmt: skip
    return merged_grid_case("qwen2_vl", Qwen2VLForConditionalGeneration(config), images, seed, patch=4)


def qwen2_5_vl(images: int = 1, seed: int = 0) -> Case:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    config = Qwen2_5_VLConfig(
        text_config={
            **PLAIN, "hidden_size": 48,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2]},
        },
        vision_config=qwen_vision(out_hidden_size=48, window_size=16, fullatt_block_indexes=[1]),
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
    )  # fmt: skip
    return merged_grid_case("qwen2_5_vl", Qwen2_5_VLForConditionalGeneration(config), images, seed, patch=4)


def qwen3_5(images: int = 1, seed: int = 0) -> Case:
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    rope = {
        "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 1], "mrope_interleaved": True,
        "partial_rotary_factor": 0.5,
    }  # fmt: skip
    config = Qwen3_5Config(
        text_config={
            **TEXT, "rope_parameters": rope, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
            "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        },
        vision_config=qwen_vision(num_position_embeddings=64),
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
    )  # fmt: skip
    return merged_grid_case("qwen3_5", Qwen3_5ForConditionalGeneration(config), images, seed, patch=4)


def glm4v(images: int = 1, seed: int = 0) -> Case:
    from transformers import Glm4vConfig, Glm4vForConditionalGeneration

    config = Glm4vConfig(
        text_config={
            **PLAIN, "hidden_size": 48,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 1], "partial_rotary_factor": 0.5,
            },
        },
        vision_config=glm_vision(),
        image_token_id=IMAGE, video_token_id=VIDEO, video_start_token_id=104, video_end_token_id=105,
        image_start_token_id=VISION_START, image_end_token_id=VISION_END,
    )  # fmt: skip
    return merged_grid_case("glm4v", Glm4vForConditionalGeneration(config), images, seed, patch=4)


def glm_vision() -> dict[str, Any]:
    """Two vision blocks of the GLM-V tower."""
    return {
        "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "patch_size": 4, "image_size": 32,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 48,
    }  # fmt: skip


def qwen2_text(**extra: Any) -> dict[str, Any]:
    """A Qwen2 text decoder."""
    return {**PLAIN, "model_type": "qwen2", "hidden_size": 48, **extra}


def llama_text(**extra: Any) -> dict[str, Any]:
    """A Llama text decoder."""
    return {**TEXT, "model_type": "llama", "head_dim": 12, **extra}


def pixels_case(
    name: str, model: Any, runs: list[list[int]], pixels: Tensor, sizes: list[tuple[int, int]], seed: int, **more: Any
) -> Case:
    """Prompt for families whose pixels are (images, 3, height, width)."""
    ids = prompt_ids(runs, seed=seed)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels, **more}
    return Case(name, sharpen(model, seed).eval(), inputs, sizes)


def noise(shape: tuple[int, ...], seed: int) -> Tensor:
    """Random pixels."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + 1))


def internvl(images: int = 1, seed: int = 0) -> Case:
    from transformers import InternVLConfig, InternVLForConditionalGeneration

    config = InternVLConfig(
        text_config=qwen2_text(),
        vision_config={
            "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": [16, 16], "patch_size": [4, 4],
        },
        image_token_id=IMAGE, image_seq_length=4, downsample_ratio=0.5,
    )  # fmt: skip
    # the first image is shown in two tiles side by side and a thumbnail, the second in one tile
    tiles = [3, 1][:images]
    runs = [[IMAGE] * (4 * n) for n in tiles]
    pixels = noise((sum(tiles), 3, 16, 16), seed)
    sizes = [(32, 16), (16, 16)][:images]
    return pixels_case("internvl", InternVLForConditionalGeneration(config), runs, pixels, sizes, seed)


def clip_vision(size: int = 16) -> dict[str, Any]:
    """Two CLIP blocks on patches of 4 pixels."""
    return {
        "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "image_size": size, "patch_size": 4, "projection_dim": 32,
    }  # fmt: skip


def siglip_vision(size: int = 16) -> dict[str, Any]:
    """Two SigLIP blocks on patches of 4 pixels."""
    return {**clip_vision(size), "model_type": "siglip_vision_model", "vision_use_head": False}


def llava(images: int = 1, seed: int = 0) -> Case:
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    config = LlavaConfig(text_config=llama_text(), vision_config=clip_vision(8), image_token_index=IMAGE)
    runs = [[IMAGE] * 4] * images
    sizes = [(8, 8)] * images
    pixels = noise((images, 3, 8, 8), seed)
    return pixels_case("llava", LlavaForConditionalGeneration(config), runs, pixels, sizes, seed)


def llava_next(images: int = 1, seed: int = 0) -> Case:
    from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration

    config = LlavaNextConfig(
        text_config=llama_text(), vision_config=clip_vision(8), image_token_index=IMAGE, image_grid_pinpoints=[[8, 16]]
    )
    # base view 2 x 2, then one row of two tiles: 2 x 4 with a newline after each row
    runs = [[IMAGE] * (4 + 2 * 5)] * images
    sizes = [(16, 8)] * images
    pixels = noise((images, 3, 3, 8, 8), seed)
    model = LlavaNextForConditionalGeneration(config)
    return pixels_case("llava_next", model, runs, pixels, sizes, seed, image_sizes=torch.tensor([[8, 16]] * images))


def llava_onevision(images: int = 1, seed: int = 0) -> Case:
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration

    config = LlavaOnevisionConfig(
        text_config=qwen2_text(), vision_config=siglip_vision(8), image_token_index=IMAGE, video_token_index=VIDEO,
        image_grid_pinpoints=[[8, 16]], vision_aspect_ratio="anyres_max_9",
    )  # fmt: skip
    runs = [[IMAGE] * (4 + 2 * 5)] * images
    sizes = [(16, 8)] * images
    pixels = noise((images, 3, 3, 8, 8), seed)
    more = {"image_sizes": torch.tensor([[8, 16]] * images), "batch_num_images": torch.tensor([1] * images)}
    model = LlavaOnevisionForConditionalGeneration(config)
    return pixels_case("llava_onevision", model, runs, pixels, sizes, seed, **more)


def gemma3(images: int = 1, seed: int = 0) -> Case:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    rope = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e4},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    }
    config = Gemma3Config(
        text_config={
            **TEXT, "sliding_window": 12, "rope_parameters": rope, "query_pre_attn_scalar": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        },
        vision_config=siglip_vision(16), image_token_index=IMAGE, mm_tokens_per_image=4,
        boi_token_index=VISION_START, eoi_token_index=VISION_END,
    )  # fmt: skip
    runs = [[IMAGE] * 4] * images
    case = pixels_case(
        "gemma3",
        Gemma3ForConditionalGeneration(config),
        runs,
        noise((images, 3, 16, 16), seed),
        [(16, 16)] * images,
        seed,
    )
    case.inputs["token_type_ids"] = (case.inputs["input_ids"] == IMAGE).long()
    return case


def gemma4_shared(images: int = 1, seed: int = 0) -> Case:
    """Gemma 4 whose two upper layers reuse the keys and values of the two lower ones."""
    return gemma4(images, seed, shared=2)


def gemma4(images: int = 1, seed: int = 0, shared: int = 0) -> Case:
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration

    config = Gemma4Config(
        text_config={
            **TEXT, "sliding_window": 12, "global_head_dim": 16, "num_kv_shared_layers": shared,
            "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB,
            "use_bidirectional_attention": "vision",
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        },
        vision_config={
            "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 4, "head_dim": 8, "patch_size": 4, "pooling_kernel_size": 2,
            "position_embedding_size": 64,
        },
        audio_config=None, image_token_id=IMAGE, video_token_id=VIDEO, boi_token_id=VISION_START,
        eoi_token_id=VISION_END,
    )  # fmt: skip
    model = Gemma4ForConditionalGeneration(config)
    grid = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(4), indexing="xy"), -1).reshape(-1, 2)
    case = pixels_case(
        "gemma4", model, [[IMAGE] * 6] * images, noise((images, 24, 48), seed), [(24, 16)] * images, seed,
        image_position_ids=grid[None].repeat(images, 1, 1),
    )  # fmt: skip
    case.inputs["mm_token_type_ids"] = (case.inputs["input_ids"] == IMAGE).long()
    return case


def paligemma(images: int = 1, seed: int = 0) -> Case:
    from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration

    config = PaliGemmaConfig(
        text_config={
            **TEXT, "model_type": "gemma2", "sliding_window": 64, "query_pre_attn_scalar": 12,
            "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0,
        },
        vision_config=siglip_vision(8), image_token_index=IMAGE, projection_dim=32, hidden_size=32,
    )  # fmt: skip
    model = PaliGemmaForConditionalGeneration(config)
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(30, 90, (9,), generator=draw).tolist()
    ids = torch.tensor([[IMAGE] * (4 * images) + [BOS, *words, 91]])
    inputs = {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": noise((images, 3, 8, 8), seed),
        "token_type_ids": torch.zeros_like(ids),
    }  # fmt: skip
    return Case("paligemma", sharpen(model, seed).eval(), inputs, [(8, 8)] * images)


def ovis2(images: int = 1, seed: int = 0) -> Case:
    from transformers import Ovis2Config, Ovis2ForConditionalGeneration

    marks = [110, 111, 112, 113, 114]
    config = Ovis2Config(
        text_config=qwen2_text(),
        vision_config={
            "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 16, "patch_size": 4, "hidden_stride": 2, "num_visual_indicator_tokens": 5, "vocab_size": 40,
        },
        image_token_id=IMAGE, visual_indicator_token_ids=marks, hidden_size=48, vocab_size=VOCAB,
    )  # fmt: skip
    start, end, grid, column, _ = marks
    run = [IMAGE] * 4
    tiled = [start, *run, grid, *run, column, *run, end]
    single = [start, *run, grid, end]
    runs = [tiled, single][:images]
    pixels = noise(([3, 4][images - 1], 3, 16, 16), seed)
    sizes = [(32, 16), (16, 16)][:images]
    return pixels_case("ovis2", Ovis2ForConditionalGeneration(config), runs, pixels, sizes, seed)


def idefics3(images: int = 1, seed: int = 0) -> Case:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    config = Idefics3Config(
        text_config=llama_text(),
        vision_config={
            "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 16, "patch_size": 4,
        },
        image_token_id=IMAGE, scale_factor=2,
    )  # fmt: skip
    runs = [[IMAGE] * 4] * images
    pixels = noise((1, images, 3, 16, 16), seed)
    case = pixels_case("idefics3", Idefics3ForConditionalGeneration(config), runs, pixels, [(16, 16)] * images, seed)
    case.inputs["pixel_attention_mask"] = torch.ones(1, images, 16, 16, dtype=torch.bool)
    return case


def smolvlm(images: int = 1, seed: int = 0) -> Case:
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    config = SmolVLMConfig(
        text_config=llama_text(),
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 16,
            "patch_size": 4,
        },
        image_token_id=IMAGE,
        scale_factor=2,
    )
    case = pixels_case(
        "smolvlm",
        SmolVLMForConditionalGeneration(config),
        [[IMAGE] * 4] * images,
        noise((1, images, 3, 16, 16), seed),
        [(16, 16)] * images,
        seed,
    )
    case.inputs["pixel_attention_mask"] = torch.ones(1, images, 16, 16, dtype=torch.bool)
    return case


def glm4v_moe(images: int = 1, seed: int = 0) -> Case:
    from transformers import Glm4vMoeConfig, Glm4vMoeForConditionalGeneration

    config = Glm4vMoeConfig(
        text_config={
            **TEXT,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [1, 1, 1],
                "partial_rotary_factor": 0.5,
            },
        },
        vision_config={**glm_vision(), "out_hidden_size": TEXT["hidden_size"]},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        video_start_token_id=104,
        video_end_token_id=105,
        image_start_token_id=VISION_START,
        image_end_token_id=VISION_END,
    )
    m = Glm4vMoeForConditionalGeneration(config)
    m.set_experts_implementation("eager")
    return merged_grid_case("glm4v_moe", m, images, seed, patch=4)


def glm46v(images: int = 1, seed: int = 0) -> Case:
    from transformers import Glm46VConfig, Glm46VForConditionalGeneration

    config = Glm46VConfig(
        text_config={
            **PLAIN,
            "model_type": "glm4v_text",
            "hidden_size": 48,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [1, 1, 1],
                "partial_rotary_factor": 0.5,
            },
        },
        vision_config={**glm_vision(), "model_type": "glm4v_vision"},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        video_start_token_id=104,
        video_end_token_id=105,
        image_start_token_id=VISION_START,
        image_end_token_id=VISION_END,
    )
    return merged_grid_case("glm46v", Glm46VForConditionalGeneration(config), images, seed, patch=4)


def qwen3_5_moe(images: int = 1, seed: int = 0) -> Case:
    from transformers import Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration

    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [1, 1, 1],
        "mrope_interleaved": True,
        "partial_rotary_factor": 0.5,
    }
    config = Qwen3_5MoeConfig(
        text_config={
            **TEXT,
            "rope_parameters": rope,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        },
        vision_config=qwen_vision(num_position_embeddings=64),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    m = Qwen3_5MoeForConditionalGeneration(config)
    m.set_experts_implementation("eager")
    return merged_grid_case("qwen3_5_moe", m, images, seed, patch=4)


def deepseek_vl(images: int = 1, seed: int = 0) -> Case:
    from transformers import DeepseekVLConfig, DeepseekVLForConditionalGeneration

    config = DeepseekVLConfig(text_config=llama_text(), vision_config=siglip_vision(8), image_token_id=IMAGE)
    return pixels_case(
        "deepseek_vl",
        DeepseekVLForConditionalGeneration(config),
        [[IMAGE] * 4] * images,
        noise((images, 3, 8, 8), seed),
        [(8, 8)] * images,
        seed,
    )


def deepseek_vl_hybrid(images: int = 1, seed: int = 0) -> Case:
    from transformers import DeepseekVLHybridConfig, DeepseekVLHybridForConditionalGeneration

    config = DeepseekVLHybridConfig(
        text_config=llama_text(),
        vision_config=siglip_vision(8),
        high_res_vision_config={
            "model_type": "sam_vision_model",
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 64,
            "patch_size": 4,
            "mlp_dim": 32,
            "output_channels": 16,
            "global_attn_indexes": [1],
            "window_size": 2,
        },
        image_token_id=IMAGE,
    )
    case = pixels_case(
        "deepseek_vl_hybrid",
        DeepseekVLHybridForConditionalGeneration(config),
        [[IMAGE] * 4] * images,
        noise((images, 3, 8, 8), seed),
        [(8, 8)] * images,
        seed,
    )
    case.inputs["high_res_pixel_values"] = noise((images, 3, 64, 64), seed + 1)
    return case


def phi4_multimodal(images: int = 1, seed: int = 0) -> Case:
    from transformers import Phi4MultimodalConfig, Phi4MultimodalForCausalLM

    config = Phi4MultimodalConfig(
        **{**PLAIN, "hidden_size": 48, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        vision_config={
            "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
            "image_size": 16, "patch_size": 4, "crop_size": 16, "image_token_id": IMAGE,
        },
        audio_config={
            "hidden_size": 16, "intermediate_size": 16, "num_blocks": 1, "num_attention_heads": 2, "input_size": 8,
            "audio_token_id": 99, "nemo_conv_channels": 16, "depthwise_seperable_out_channel": 16,
            "ext_pw_out_channel": 16,
        },
    )  # fmt: skip
    # one tile of 2 x 2 tokens with a newline a row, a separator, the whole image likewise
    ids = prompt_ids([[IMAGE] * (2 * 3 + 1 + 2 * 3)] * images, seed=seed)
    inputs = {
        "input_ids": ids, "attention_mask": torch.ones_like(ids),
        "image_pixel_values": noise((images, 2, 3, 16, 16), seed), "image_sizes": torch.tensor([[16, 16]] * images),
        "image_attention_mask": torch.ones(images, 2, 4, 4, dtype=torch.bool),
    }  # fmt: skip
    model = sharpen(Phi4MultimodalForCausalLM(config), seed).eval()
    return Case("phi4_multimodal", model, inputs, [(16, 16)] * images)


BUILDERS: dict[str, Callable[..., Case]] = {
    builder.__name__: builder
    for builder in (
        qwen3_vl, qwen3_vl_moe, qwen2_vl, qwen2_5_vl, qwen3_5, glm4v, internvl, llava, llava_next, llava_onevision,
        gemma3, gemma4, gemma4_shared, paligemma, ovis2, idefics3,
        smolvlm, glm4v_moe, glm46v, qwen3_5_moe, deepseek_vl, deepseek_vl_hybrid,
        phi4_multimodal,
    )
}  # fmt: skip


def build(name: str, images: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32) -> Case:
    """The tiny model of a family with its prompt, pixels in ``dtype``."""
    case = BUILDERS[name](images, seed)
    case.model.to(dtype)
    case.inputs = {
        k: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in case.inputs.items()
    }
    return case


def by_hand(case: Case) -> dict[str, set[int]]:
    """Row groups and key sets from the token ids of the tiny prompts, without the package's layouts."""
    ids = case.inputs["input_ids"][0].tolist()
    image = {i for i, token in enumerate(ids) if token == 100}
    last = len(ids) - 1
    first, after = min(image), max(image) + 1
    tail = last if case.name == "paligemma" else last - 2
    turn = 0 if case.name == "paligemma" else 3
    groups = {
        "all": set(range(len(ids))),
        "prefix": set(range(first)),
        "image": set(range(first, after)),
        "question": set(range(after, tail)),
        "tail": set(range(tail, last + 1)),
        "last": {last},
        "image keys": image,
        "text keys": set(range(turn, tail)) - image,
    }
    return groups
