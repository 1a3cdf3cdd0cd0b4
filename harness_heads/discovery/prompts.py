"""One function renders a prompt, for discovery as the evaluation's host does: system turn, images, text, template.

The Qwen hosts of lmms-eval always add a system turn and, from Qwen3-VL on, resize images by ``qwen_vl_utils`` before
the processor sees them (which must not resize again). Other hosts hand images over as they are, without a system turn.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from harness_heads.errors import HarnessHeadsError
from harness_heads.families import Family
from harness_heads.layouts import PromptLayout

SYSTEM = "You are a helpful assistant."
_SYSTEM_FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")
_RESIZED_BY_HOST = {"qwen3_vl": 16, "qwen3_5": 16}  # family -> patch size that the host passes to qwen_vl_utils


def system_of(family: Family) -> str | None:
    """The system turn that the family's host adds, or ``None``."""
    return SYSTEM if family.name in _SYSTEM_FAMILIES else None


@dataclass(frozen=True)
class Prompt:
    """Images and words of one user turn; images come first."""

    images: tuple[Image.Image, ...]
    text: str


@dataclass(frozen=True, eq=False)
class Rendered:
    """A batch of prompts as the model takes them.

    Attributes:
        inputs: what the processor made, padded on the left; tensors on the CPU.
        layouts: one a prompt, in positions without padding.
        pads: padding tokens on the left of each prompt.
        texts: the rendered chat templates.
    """

    inputs: Mapping[str, Any]
    layouts: tuple[PromptLayout, ...]
    pads: tuple[int, ...]
    texts: tuple[str, ...]

    def ids(self, row: int) -> Tensor:
        """Token ids of one prompt without padding; long (T,)."""
        ids: Tensor = self.inputs["input_ids"][row]
        return ids[self.pads[row] : self.pads[row] + self.layouts[row].length]


def render(
    processor: Any, config: Any, family: Family, prompts: Sequence[Prompt], system: str | None = None
) -> Rendered:
    """Turn prompts into model inputs.

    Args:
        system: the system turn, ``None`` for none; :func:`system_of` says what the host does.

    Raises:
        HarnessHeadsError: what the family's layout rule raises.
    """
    messages = [_messages(prompt, system) for prompt in prompts]
    texts = [processor.apply_chat_template(m, tokenize=False, add_generation_prompt=True) for m in messages]
    options: dict[str, Any] = {"padding": True, "padding_side": "left"} if len(prompts) > 1 else {}
    patch = _RESIZED_BY_HOST.get(family.name)
    if patch is not None:
        from qwen_vl_utils import process_vision_info

        images, _ = process_vision_info(messages, image_patch_size=patch)
        options["do_resize"] = False
    elif family.name in _SYSTEM_FAMILIES:
        from qwen_vl_utils import process_vision_info

        images, _ = process_vision_info(messages)
    else:
        images = [list(prompt.images) for prompt in prompts] if any(p.images for p in prompts) else None
    inputs = dict(processor(text=texts, images=images, return_tensors="pt", **options))
    mask = inputs.get("attention_mask")
    pads = tuple(int(p) for p in (mask == 0).sum(1)) if mask is not None else (0,) * len(prompts)
    layouts = []
    for row, prompt in enumerate(prompts):
        sizes = [image.size for image in prompt.images]
        layouts.append(family.layout(config, _alone(inputs, prompts, row), sizes, processor, row=row))
    return Rendered(inputs, tuple(layouts), pads, tuple(texts))


def _messages(prompt: Prompt, system: str | None) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = [{"type": "image", "image": image} for image in prompt.images]
    content.append({"type": "text", "text": prompt.text})
    turns: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if system is not None:
        turns.insert(0, {"role": "system", "content": [{"type": "text", "text": system}]})
    return turns


def _alone(inputs: Mapping[str, Any], prompts: Sequence[Prompt], row: int) -> dict[str, Any]:
    """Inputs in which what is listed by image is this prompt's own; the text stays batched."""
    start = sum(len(p.images) for p in prompts[:row])
    total = sum(len(p.images) for p in prompts)
    out = dict(inputs)
    for name in ("image_grid_thw",):
        value = inputs.get(name)
        if value is not None and len(value) == total:
            out[name] = value[start : start + len(prompts[row].images)]
    return out


def span_rows(
    processor: Any, rendered: Rendered, row: int, text: str, span: tuple[int, int], widen: bool = False
) -> Tensor:
    """Rows of the tokens that spell a phrase of the user's text.

    White space that the tokenizer glues to a word may reach over the span's border; a letter may not.

    Args:
        text: the user's text as it was rendered.
        span: character offsets of the phrase in ``text``.
        widen: take a token whole that reaches over the border.

    Returns:
        Ascending positions without padding; long (n,).

    Raises:
        HarnessHeadsError: the text is not in the prompt as it is, the tokenizer gives no offsets, a token reaches over
            the border, or the tokens do not spell the phrase.
    """
    whole = rendered.texts[row]
    start = whole.rfind(text)
    phrase = text[span[0] : span[1]]
    if start < 0:
        raise HarnessHeadsError(f"query {text!r}: the chat template changes it, so that its phrase cannot be found")
    first, last = start + span[0], start + span[1]
    tokenizer = getattr(processor, "tokenizer", processor)
    if not getattr(tokenizer, "is_fast", False):
        raise HarnessHeadsError("the query span needs a fast tokenizer (character offsets); this one is not")
    encoded = tokenizer(whole, return_offsets_mapping=True, add_special_tokens=False)
    chosen = []
    for index, (left, right) in enumerate(encoded["offset_mapping"]):
        if left >= last or right <= first or left == right:
            continue
        outside = whole[left:first] + whole[last:right]
        if outside.strip() and not widen:
            raise HarnessHeadsError(
                f"query span {phrase!r}: the token {whole[left:right]!r} reaches over its border; reword the query, or "
                "take the whole token (--widen)"
            )
        chosen.append(index)
    # white space alone at the ends spells nothing of the phrase
    blank = [not whole[left:right].strip() for left, right in encoded["offset_mapping"]]
    while chosen and blank[chosen[0]]:
        chosen.pop(0)
    while chosen and blank[chosen[-1]]:
        chosen.pop()
    if not chosen:
        raise HarnessHeadsError(f"query span {phrase!r}: no token spells it")
    rows = _place(encoded["input_ids"], rendered.ids(row), chosen, phrase)
    spelled = tokenizer.decode([int(rendered.ids(row)[r]) for r in rows], clean_up_tokenization_spaces=False)
    if not widen and _plain(spelled) != _plain(phrase):
        raise HarnessHeadsError(f"query span {phrase!r}: its tokens spell {spelled!r}; reword the query")
    return torch.tensor(rows)


def _place(plain_ids: Sequence[int], ids: Tensor, chosen: Sequence[int], phrase: str) -> list[int]:
    """Positions in the model's ids (with image tokens unfolded) of tokens of the text that was tokenised alone.

    Images come before or after the phrase: the ids agree from the phrase to the end, or from the beginning to it.
    """
    full = ids.tolist()
    behind = len(plain_ids) - chosen[0]
    if behind <= len(full) and full[len(full) - behind :] == list(plain_ids[chosen[0] :]):
        shift = len(full) - len(plain_ids)
        return [index + shift for index in chosen]
    for bos in (0, 1):
        before = chosen[-1] + 1
        if full[bos : bos + before] == list(plain_ids[:before]):
            return [index + bos for index in chosen]
    raise HarnessHeadsError(f"query span {phrase!r}: the processor tokenises the prompt otherwise than the tokenizer")


def _plain(text: str) -> str:
    """For comparison: composed characters, no white space at the ends."""
    return unicodedata.normalize("NFC", text).strip()


def with_answers(rendered: Rendered, answers: Sequence[Tensor], pad: int, config: Any) -> dict[str, Any]:
    """Inputs of a batch with answer tokens behind each prompt, padded on the right.

    Args:
        answers: token ids of each answer; long (n,).
        pad: id of the padding token.
        config: the model's; PaliGemma marks tokens behind the prompt as suffix, which the prompt does not see.
    """
    longest = max(len(answer) for answer in answers)
    inputs = dict(rendered.inputs)
    batch, length = inputs["input_ids"].shape
    tail = torch.full((batch, longest), pad)
    seen = torch.zeros((batch, longest), dtype=torch.long)
    for row, answer in enumerate(answers):
        tail[row, : len(answer)] = answer
        seen[row, : len(answer)] = 1
    mask = inputs.get("attention_mask")
    if mask is None:
        mask = torch.ones((batch, length), dtype=torch.long)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], 1)
    inputs["attention_mask"] = torch.cat([mask, seen.to(mask.dtype)], 1)
    kind = 1 if str(getattr(config, "model_type", "")).startswith("paligemma") else 0
    for name, value in rendered.inputs.items():
        if name.endswith("token_type_ids") and value.shape == (batch, length):
            inputs[name] = torch.cat([value, value.new_full((batch, longest), kind)], 1)
    return inputs
