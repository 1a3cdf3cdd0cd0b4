"""A small Qwen3-VL whose weights are set by hand, so that every answer is known in closed form.

Images are grids of cells, one image token each, of one colour: red, green, blue and white stand for the options A to D,
black for nothing. Two heads do the work; all other heads attend as they do and write nothing.

* Copying head, layer 0 head 0: in every row, image keys score :data:`COPY_SCORE` and all other keys 0; it writes the
  classes that it sees into the row (evidence).
* Reading head, layer 1 head 1: the question's marker token scores :data:`READ_SCORE`, so high that all attention goes
  there; it carries the marker row's evidence to the final row, where the output layer turns it into a letter.

The vision tower is a chain of exact steps: patches become the mean of their colour channels, blocks pass them through,
and the merger's GELU is driven so far out that it is exactly the identity or zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PATCH, MERGE = 4, 2
CELL = PATCH * MERGE  # pixels of one image token
COLOURS = {"A": (1, 0, 0), "B": (0, 1, 0), "C": (0, 0, 1), "D": (1, 1, 1), "-": (0, 0, 0)}
LETTERS = "ABCD"
WIDTH, HEAD_WIDTH, HEADS, KV_HEADS, VOCAB = 16, 16, 4, 2, 64
# residual dimensions
CONSTANT, CLASS, IS_IMAGE, IS_MARKER, EVIDENCE, ANSWER = 0, 1, 5, 6, 7, 11
# tokens
LETTER_IDS = {letter: 10 + i for i, letter in enumerate(LETTERS)}
WORD, MARKER, IMAGE, START, END, TURN_START, USER, TURN_END, ASSISTANT = 20, 21, 30, 31, 32, 33, 34, 35, 36
CONSTANT_SIZE, COPY_SCORE, READ_SCORE = 2.0, 1.0, 60.0
EVIDENCE_GAIN, ANSWER_GAIN, LETTER_GAIN, OTHERS_LOGIT = 3.0, 1.0, 8.0, -40.0
FLAT = 7  # a head dimension that rotary embedding leaves alone
Weight = Callable[[int, int], float]
"""Weight (before normalisation) of a key position in the copying head, for one row."""


class Tokens:
    """The few strings that the planted model knows."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        if text in LETTER_IDS:
            return [LETTER_IDS[text]]
        return {"<|im_start|>user": [TURN_START, USER], "<|im_end|>": [TURN_END]}.get(text, [1, 1])


def planted_model(dtype: torch.dtype = torch.float64, letter_gain: float = LETTER_GAIN) -> Any:
    """The model, with every weight set; a small ``letter_gain`` leaves its answers unsure."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = Qwen3VLConfig(
        text_config={
            "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 8, "num_hidden_layers": 2,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_WIDTH,
            "max_position_embeddings": 256, "rms_norm_eps": 1e-24, "pad_token_id": 0, "eos_token_id": TURN_END,
            # so large a base that only the first few head dimensions rotate at all
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e60, "mrope_section": [4, 2, 2], "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "patch_size": PATCH,
            "spatial_merge_size": MERGE, "temporal_patch_size": 2, "out_hidden_size": WIDTH,
            "num_position_embeddings": 16, "deepstack_visual_indexes": [],
        },
        image_token_id=IMAGE, video_token_id=40, vision_start_token_id=START, vision_end_token_id=END,
    )  # fmt: skip
    model = Qwen3VLForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        parameter.data = torch.ones_like(parameter) if "norm" in name and "bias" not in name else 0 * parameter.data
    _plant_vision(model.model.visual)
    _plant_text(model, letter_gain)
    return model.to(dtype)


def _plant_vision(visual: nn.Module) -> None:
    channel = 2 * PATCH * PATCH  # values of one colour channel in a patch
    kernel = visual.patch_embed.proj  # type: ignore[union-attr]
    for colour in range(3):  # mean of the channel, moved from [-1, 1] to [0, 1]
        kernel.weight.data[colour, colour] = 0.5 / channel
        kernel.bias.data[colour] = 0.5
    merger: Any = visual.merger
    # sums over the four merged patches of their normed colours, after LayerNorm over 8 channels
    one, three = math.sqrt(7), 5 / math.sqrt(15)
    matches = {"A": 4 * (one + 2 / one), "B": 4 * (one + 2 / one), "C": 4 * (one + 2 / one), "D": 4 * 3 * three}
    thresholds = {"A": 7.0, "B": 7.0, "C": 7.0, "D": 12.0}
    for unit, letter in enumerate(LETTERS):
        scale = 100 / (matches[letter] - thresholds[letter])
        for patch in range(4):
            for colour in range(3):
                sign = 1.0 if letter == "D" or unit == colour else -1.0
                merger.linear_fc1.weight.data[unit, 8 * patch + colour] = scale * sign
        merger.linear_fc1.bias.data[unit] = -scale * thresholds[letter]
        merger.linear_fc2.weight.data[CLASS + unit, unit] = 0.01  # a match is 100 before, 1 after
    merger.linear_fc2.bias.data[IS_IMAGE] = 1.0
    merger.linear_fc2.bias.data[CONSTANT] = CONSTANT_SIZE


def _plant_text(model: Any, letter_gain: float) -> None:
    decoder = model.get_decoder()
    embeddings = decoder.embed_tokens.weight.data
    embeddings[:, CONSTANT] = CONSTANT_SIZE
    embeddings[MARKER, IS_MARKER] = 1.0
    copying, reading = (layer.self_attn for layer in decoder.layers)
    for attention, feature, score, value, target, gain, head in (
        (copying, IS_IMAGE, COPY_SCORE, CLASS, EVIDENCE, EVIDENCE_GAIN, 0),
        (reading, IS_MARKER, READ_SCORE, EVIDENCE, ANSWER, ANSWER_GAIN, 1),
    ):
        for h in range(HEADS):
            attention.q_proj.weight.data[h * HEAD_WIDTH + FLAT, CONSTANT] = 1.0
        for kv in range(KV_HEADS):
            attention.k_proj.weight.data[kv * HEAD_WIDTH + FLAT, feature] = 1.0
            for option in range(4):
                attention.v_proj.weight.data[kv * HEAD_WIDTH + option, value + option] = 1.0
        # normed queries and keys are 4 long along FLAT, scores are scaled by a quarter
        attention.k_norm.weight.data[:] = score / 4
        for option in range(4):
            attention.o_proj.weight.data[target + option, head * HEAD_WIDTH + option] = gain
    output = model.lm_head.weight.data
    output[:, CONSTANT] = OTHERS_LOGIT
    for option, letter in enumerate(LETTERS):
        output[LETTER_IDS[letter]] = 0.0
        output[LETTER_IDS[letter], ANSWER + option] = letter_gain


@dataclass(frozen=True)
class PlantedPrompt:
    """inputs: of the model.  size: width and height in pixels.  marker: position of the marker token.
    image: positions of the image tokens, cell by cell.  classes: their classes.  length: tokens."""

    inputs: dict[str, Tensor]
    size: tuple[int, int]
    marker: int
    image: tuple[int, ...]
    classes: str
    length: int


def planted_prompt(cells: str, columns: int = 2, words: int = 3) -> PlantedPrompt:
    """A prompt that shows cells such as ``"A-BC"`` in reading order, ``columns`` to a row."""
    rows = len(cells) // columns
    before = [WORD, TURN_START, USER, START]
    after = [END, *[WORD] * words, MARKER, TURN_END, TURN_START, ASSISTANT]
    ids = torch.tensor([[*before, *[IMAGE] * len(cells), *after]])
    patches = []
    for letter in cells:  # patches come in merge blocks: all four of a cell follow each other
        for _ in range(MERGE * MERGE):
            channels = [torch.full((2 * PATCH * PATCH,), 2.0 * value - 1.0) for value in COLOURS[letter]]
            patches.append(torch.cat(channels))
    first = len(before)
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.stack(patches).double(),
        "image_grid_thw": torch.tensor([[1, rows * MERGE, columns * MERGE]]),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }
    image = tuple(range(first, first + len(cells)))
    size = (columns * CELL, rows * CELL)
    return PlantedPrompt(inputs, size, ids[0].tolist().index(MARKER), image, cells, ids.shape[1])


def plain(prompt: PlantedPrompt) -> Weight:
    """The copying head's own weights."""
    return lambda row, key: math.exp(COPY_SCORE) if key in prompt.image else 1.0


def by_hand(prompt: PlantedPrompt, weight: Weight, letter_gain: float = LETTER_GAIN) -> dict[str, float]:
    """P(letter) when row r of the copying head gives key j the weight ``weight(r, j)`` before normalisation."""

    def rms(*squares: float) -> float:
        return math.sqrt((CONSTANT_SIZE**2 + sum(squares)) / WIDTH)

    def evidence(row: int) -> list[float]:
        total = sum(weight(row, key) for key in range(row + 1))
        found = [0.0] * 4
        for key, letter in zip(prompt.image, prompt.classes, strict=True):
            if letter in LETTERS and total > 0:
                # an image token holds the constant, one class and the image feature
                found[LETTERS.index(letter)] += EVIDENCE_GAIN * weight(row, key) / total / rms(1, 1)
        return found

    at_marker, at_end = evidence(prompt.marker), evidence(prompt.length - 1)
    marker_rms = rms(1, *(e * e for e in at_marker))
    answer = [ANSWER_GAIN * e / marker_rms for e in at_marker]
    final_rms = rms(*(e * e for e in at_end), *(a * a for a in answer))
    logits = [letter_gain * a / final_rms for a in answer]
    others = (VOCAB - 4) * math.exp(OTHERS_LOGIT * CONSTANT_SIZE / final_rms)
    total = sum(math.exp(v) for v in logits) + others
    return {letter: math.exp(v) / total for letter, v in zip(LETTERS, logits, strict=True)}
