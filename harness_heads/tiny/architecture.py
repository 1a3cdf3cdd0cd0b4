"""Shape and initial weights of the embedded model."""

import torch
from transformers import Qwen2Tokenizer, Qwen3VLConfig, Qwen3VLForConditionalGeneration

LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 6, 16, 8, 16, 128
MIMETIC_KEEP, MIMETIC_NOISE = 0.8, 0.3
NORM_GAIN = 1.15
# with wide embeddings and quiet sub-layers a token still looks like itself after several layers, so that
# same-token matching is as easy in a deep layer as in the first
EMBEDDING_STD, QUIET = 0.1, 0.15


def build_config(tokenizer: Qwen2Tokenizer) -> Qwen3VLConfig:
    """Configuration: 6 text layers of 16 query and 8 key/value heads, 3 vision layers of width 64."""
    token = tokenizer.convert_tokens_to_ids
    vocab = -(-len(tokenizer) // 64) * 64
    return Qwen3VLConfig(
        text_config={
            "vocab_size": vocab,
            "hidden_size": HIDDEN,
            "intermediate_size": 192,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "max_position_embeddings": 4096,
            "initializer_range": 0.04,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000.0,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
            "bos_token_id": None,
            "eos_token_id": token("<|im_end|>"),
            "pad_token_id": token("<|endoftext|>"),
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 4,
            "in_channels": 3,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0],
            "initializer_range": 0.04,
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def mimetic_groups(seed: int, per_layer: int) -> list[list[int]]:
    """Key/value heads that start as same-token matchers, drawn by seed.

    Args:
        seed: Training seed.
        per_layer: How many of the 8 key/value heads of each layer.

    Returns:
        For each layer the chosen key/value heads, ascending.
    """
    draw = torch.Generator().manual_seed(seed + 7919)
    return [sorted(torch.randperm(KV_HEADS, generator=draw)[:per_layer].tolist()) for _ in range(LAYERS)]


def build_model(tokenizer: Qwen2Tokenizer, seed: int, mimetic_per_layer: int) -> Qwen3VLForConditionalGeneration:
    """A fresh model in float32.

    In some key/value heads of every layer, at places drawn by seed, the key projection starts as a noisy copy of
    the query projection of the group's first head, so that matching a token with its like exists from the start.

    Args:
        tokenizer: Gives the vocabulary's size and the special tokens.
        seed: Seeds all initial weights.
        mimetic_per_layer: How many key/value heads of each layer start so.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(build_config(tokenizer)).float()
        with torch.no_grad():
            model.model.language_model.embed_tokens.weight.normal_(0.0, EMBEDDING_STD)
            for layer, groups in zip(
                model.model.language_model.layers, mimetic_groups(seed, mimetic_per_layer), strict=True
            ):
                attention = layer.self_attn
                attention.o_proj.weight.mul_(QUIET)
                layer.mlp.down_proj.weight.mul_(QUIET)
                attention.q_norm.weight.fill_(NORM_GAIN)
                attention.k_norm.weight.fill_(NORM_GAIN)
                for group in groups:
                    first = group * (HEADS // KV_HEADS) * HEAD_DIM
                    query = attention.q_proj.weight[first : first + HEAD_DIM]
                    noise = torch.randn_like(query) * query.std()
                    rows = slice(group * HEAD_DIM, (group + 1) * HEAD_DIM)
                    attention.k_proj.weight[rows] = MIMETIC_KEEP * query + MIMETIC_NOISE * noise
    model.generation_config.eos_token_id = model.config.text_config.eos_token_id
    model.generation_config.pad_token_id = model.config.text_config.pad_token_id
    model.generation_config.do_sample = False
    return model
