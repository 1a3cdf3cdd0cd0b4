"""The embedded model's tokenizer, chat template and processor, made from its own few sentences."""

import json
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AddedToken, Qwen2Tokenizer, Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from . import wording

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# borders of grid and strip cells in thousandths; with the box's brackets they make a box twelve tokens long
COORDINATES = ("167", "333", "500", "667", "833", "1000")
BOX_OPEN, BOX_CLOSE = '[{"bbox_2d": [', "]}]"
# questions that only the training script asks
AUXILIARY = (
    "Match the digits.",
    "Match the cells.",
    "Match the panels.",
    "List the digits.",
)
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}{%- else -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif part.type == 'video' or 'video' in part -%}"
    "{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}"
    "{%- elif 'text' in part -%}{{- part.text -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def _sentences() -> Iterator[str]:
    yield f"system\n{wording.SYSTEM}\nuser\nassistant\n"
    for digit in range(10):
        word = wording.DIGITS[digit]
        yield wording.mcq(wording.text_solvable(digit), (word, word, word, word))
        yield from (wording.find_cell(digit), wording.referring(digit), wording.locate(digit), word)
    for panel, word in enumerate(wording.ORDINALS):
        yield from (wording.ordinal(panel), word)
    for cell, name in enumerate(wording.CELLS):
        yield from (wording.named_cell(cell), wording.mcq(wording.SINGLE, (name, name, name, name)))
    yield from (wording.MARKED, wording.SINGLE, *AUXILIARY)


def build_tokenizer() -> Qwen2Tokenizer:
    """Byte-level BPE with Qwen's pre-tokenizer: every word of the sentences is one token, all else bytes."""
    raw = Tokenizer(models.BPE())
    raw.normalizer = normalizers.NFC()
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=1000, min_frequency=1, initial_alphabet=alphabet, show_progress=False)
    raw.train_from_iterator(list(_sentences()), trainer)
    trained = json.loads(raw.to_str())["model"]
    merges = [tuple(pair) for pair in trained["merges"]]
    tokenizer = Qwen2Tokenizer(
        vocab=trained["vocab"],
        merges=merges,
        unk_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=4096,
    )
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in (BOX_OPEN, BOX_CLOSE, *COORDINATES)]
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_processor() -> Qwen3VLProcessor:
    """Processor that leaves 64 x 64 pictures and larger multiples of 32 pixels as they are."""
    size = {"shortest_edge": 64 * 64, "longest_edge": 1605632}
    pixels = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "patch_size": 16, "merge_size": 2}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size, temporal_patch_size=2, **pixels),
        tokenizer=build_tokenizer(),
        video_processor=Qwen3VLVideoProcessor(size=size, temporal_patch_size=2, **pixels),
        chat_template=CHAT_TEMPLATE,
    )
