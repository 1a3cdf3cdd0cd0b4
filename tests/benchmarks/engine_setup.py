"""What the engine's benchmark runs on: a random Qwen3-VL, a prompt, head sets, and the loop it is compared with."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, empty_set

IMAGE, START, END, TURN = 8000, 8001, 8002, 8003
LAYERS, HEADS = 12, 16
FIRST_TOUCHED, SET_SIZE = 4, 30
MODEL = ModelRef("random-qwen3-vl")


class Letters:
    """Two letters and the turn's markers; no text is ever tokenised here."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        known = {"A": [11], "B": [12], "C": [13], "D": [14], "<|im_end|>": [TURN]}
        return known.get(text, [20, 21])


@dataclass(frozen=True)
class Shape:
    """Sizes of a random Qwen3-VL: arguments of its text and vision configs, and the first layer that sets touch."""

    text: dict[str, Any]
    vision: dict[str, Any]
    first_touched: int


SMALL = Shape(
    {
        "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 2048,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True,
        },
    },
    {
        "depth": 8, "hidden_size": 256, "intermediate_size": 1024, "num_heads": 8, "out_hidden_size": 512,
        "num_position_embeddings": 1024, "deepstack_visual_indexes": [1, 3],
    },
    FIRST_TOUCHED,
)  # fmt: skip
# the published config of Qwen3-VL-8B; sets touch the upper two thirds of its layers, as above
LARGE = Shape(
    {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 8192,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True,
        },
    },
    {
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096,
        "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24],
    },
    12,
)  # fmt: skip


def model(shape: Shape = SMALL, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Any:
    """A random Qwen3-VL of some shape; 12 layers of width 512 on 8 vision layers of width 256 by default."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(0)  # transformers draws its initial weights from the global generator
    config = Qwen3VLConfig(
        text_config=shape.text,
        vision_config={"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, **shape.vision},
        image_token_id=IMAGE, video_token_id=8004, vision_start_token_id=START, vision_end_token_id=END, dtype=dtype,
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            made = Qwen3VLForConditionalGeneration(config).eval()
    finally:
        torch.set_default_dtype(before)
    draw = torch.Generator(device).manual_seed(1)
    for name, parameter in made.model.language_model.named_parameters():
        # peaked attention, so that interventions have effects
        gain = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
        if parameter.ndim == 2:
            parameter.data.normal_(0.0, gain / parameter.shape[-1] ** 0.5, generator=draw)
    return made


def prompt(image_side: int = 16, prefix: int = 14, after: int = 60) -> dict[str, Tensor]:
    """``prefix`` + 1 tokens, image_side^2 image tokens, ``after`` tokens (256 image and 75 text tokens by default)."""
    draw = torch.Generator().manual_seed(2)
    words = torch.randint(100, 7000, (prefix + after,), generator=draw).tolist()
    question = words[prefix:]
    question[-5] = TURN
    ids = torch.tensor([[*words[:prefix], START, *[IMAGE] * image_side**2, END, *question[1:]]])
    patches = (2 * image_side) ** 2
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(patches, 3 * 2 * 16 * 16, generator=draw),
        "image_grid_thw": torch.tensor([[1, 2 * image_side, 2 * image_side]]),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }


def head_sets(geometry: Geometry, count: int, first_touched: int = FIRST_TOUCHED, seed: int = 3) -> list[HeadSet]:
    """The empty set and ``count`` random sets of 30 heads from some layer on."""
    draw = torch.Generator().manual_seed(seed)
    pool = [
        Head(layer, head)
        for layer in range(first_touched, len(geometry.heads))
        for head in range(geometry.heads[layer])
    ]
    sets = [empty_set(MODEL, geometry)]
    for number in range(count):
        chosen = torch.randperm(len(pool), generator=draw)[:SET_SIZE].tolist()
        sets.append(HeadSet(f"random-{number}", MODEL, geometry, tuple(pool[i] for i in chosen)))
    return sets


@dataclass
class NaiveLoop:
    """One full eager forward per head set, masks added by a hook on ``attention_mask``, as public gaze-heads code does.

    The vision tower keeps its own kernel and runs in every forward.
    """

    model: Any
    inputs: dict[str, Tensor]
    rows: Tensor

    def __call__(self, sets: list[HeadSet]) -> Tensor:
        """Logits of the final row per set, (S, V)."""
        decoder = self.model.get_decoder()
        before = decoder.config._attn_implementation
        decoder.config._attn_implementation_internal = "eager"
        try:
            return torch.stack([self._one(heads) for heads in sets])
        finally:
            decoder.config._attn_implementation_internal = before

    def _one(self, heads: HeadSet) -> Tensor:
        hooks = []
        by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            by_layer.setdefault(layer, []).append(head)
        layers = self.model.get_decoder().layers
        for layer, indices in by_layer.items():
            attention = layers[layer].self_attn
            hooks.append(attention.register_forward_pre_hook(self._hook(indices), with_kwargs=True))
        try:
            with torch.no_grad():
                return self.model(**self.inputs, use_cache=False, logits_to_keep=1).logits[0, -1]
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, indices: list[int]) -> Any:
        image = (self.inputs["input_ids"][0] == IMAGE).nonzero()[:, 0]
        heads = self.model.config.text_config.num_attention_heads

        def add_mask(_: Any, args: Any, kwargs: Any) -> Any:
            # written in place of a sum: the values are the same, and the hook's own cost stays small
            mask = kwargs["attention_mask"].repeat(1, heads, 1, 1)
            for head in indices:
                mask[:, head, self.rows[:, None], image] = torch.finfo(mask.dtype).min
            kwargs["attention_mask"] = mask
            return args, kwargs

        return add_mask


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Write what a benchmark found, with the commit and the versions that it was found on."""
    git = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    whole = {**report, "commit": done.stdout.strip(), "versions": versions}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
