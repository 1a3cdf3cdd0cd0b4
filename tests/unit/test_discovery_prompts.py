"""Prompts, query spans and answers, on the embedded model's own processor."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from PIL import Image

from harness_heads.discovery.prompts import SYSTEM, Prompt, Rendered, render, span_rows, system_of, with_answers
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import FAMILIES
from harness_heads.tiny import wording
from harness_heads.tiny.architecture import build_config
from harness_heads.tiny.processor import build_processor

FAMILY = next(f for f in FAMILIES if f.name == "qwen3_vl")


@functools.cache
def processor() -> Any:
    return build_processor()


def rendered(*texts: str, sizes: tuple[tuple[int, int], ...] = ()) -> Rendered:
    pictures = [Image.new("RGB", size, "white") for size in sizes or ((384, 64),) * len(texts)]
    prompts = [Prompt((picture,), text) for picture, text in zip(pictures, texts, strict=True)]
    return render(processor(), build_config(processor().tokenizer), FAMILY, prompts, system_of(FAMILY))


def spelled(made: Rendered, row: int, rows: torch.Tensor) -> str:
    return str(processor().tokenizer.decode(made.ids(row)[rows].tolist()))


def test_the_hosts_system_turn_and_image_size() -> None:
    made = rendered(wording.referring(7))
    assert made.texts[0].startswith(f"<|im_start|>system\n{SYSTEM}<|im_end|>")
    assert made.texts[0].endswith("<|im_start|>assistant\n")
    assert made.inputs["image_grid_thw"].tolist() == [[1, 4, 24]]
    assert len(made.layouts[0].image_positions) == 24
    assert made.layouts[0].images[0].size == (384, 64)


def test_images_are_resized_as_the_host_does_and_regions_follow() -> None:
    made = rendered("hi", sizes=((100, 50),))
    # at least 64 x 64 pixels of area, sides multiples of 32
    assert made.inputs["image_grid_thw"].tolist() == [[1, 4, 6]]
    assert made.layouts[0].images[0].size == (100, 50)


def test_batches_pad_on_the_left_and_keep_each_prompts_positions() -> None:
    short, long = wording.referring(7), wording.ordinal(2) + " " + wording.referring(3)
    both, alone = rendered(short, long), [rendered(short), rendered(long)]
    assert both.pads[0] > 0 and both.pads[1] == 0
    for row in range(2):
        assert torch.equal(both.ids(row), alone[row].ids(0))
        assert torch.equal(both.layouts[row].image_positions, alone[row].layouts[0].image_positions)
        padded = both.inputs["input_ids"][row, both.pads[row] :]
        assert torch.equal(padded, alone[row].inputs["input_ids"][0])


@pytest.mark.parametrize("digit", range(10))
def test_span_of_a_referring_phrase(digit: int) -> None:
    made = rendered(wording.referring(digit))
    rows = span_rows(processor(), made, 0, wording.referring(digit), wording.referring_span(digit))
    assert spelled(made, 0, rows).strip() == f"the digit {wording.DIGITS[digit]}"
    assert rows.min() > made.layouts[0].image_positions.max()


def test_span_in_a_padded_batch_counts_without_padding() -> None:
    text = wording.ordinal(4)
    made = rendered(text, text + " " + wording.referring(1))
    rows = span_rows(processor(), made, 0, text, wording.ordinal_span(4))
    assert spelled(made, 0, rows).strip() == "the fifth panel"


def test_whole_questions_are_spans_too() -> None:
    text = wording.referring(2)
    made = rendered(text)
    assert spelled(made, 0, span_rows(processor(), made, 0, text, (0, len(text)))) == text


def test_a_token_over_the_border_is_an_error_unless_widened() -> None:
    text = wording.referring(7)
    made = rendered(text)
    start = text.index("seven")
    with pytest.raises(HarnessHeadsError, match=r"span 'sev': the token ' seven' reaches over its border.*--widen"):
        span_rows(processor(), made, 0, text, (start, start + 3))
    rows = span_rows(processor(), made, 0, text, (start, start + 3), widen=True)
    assert spelled(made, 0, rows) == " seven"


@pytest.mark.parametrize("caption", ["un café noir", "un cafe\u0301 noir", "猫が走る", "naïve “quotes”", "a 😀 face"])
def test_captions_beyond_ascii_are_found_or_refused(caption: str) -> None:
    text = f"Which panel from the left shows this: {caption}\nAnswer briefly."
    start = text.index(caption)
    made = rendered(text)
    rows = span_rows(processor(), made, 0, text, (start, start + len(caption)))
    import unicodedata

    assert unicodedata.normalize("NFC", spelled(made, 0, rows)).strip() == unicodedata.normalize("NFC", caption)


def test_a_tokenizer_that_changes_the_phrase_is_refused() -> None:
    class Changing:
        """Drops accents, as some tokenizers do."""

        is_fast = True
        tokenizer = None

        def __call__(self, text: str, **options: Any) -> dict[str, Any]:
            return processor().tokenizer(text.replace("é", "e"), **options)  # type: ignore[no-any-return]

        def decode(self, ids: list[int], **options: Any) -> str:
            return str(processor().tokenizer.decode(ids, **options))

    text = "Which panel shows café noir today"
    made = rendered(text.replace("é", "e"))
    made = Rendered(made.inputs, made.layouts, made.pads, (made.texts[0].replace("cafe", "café"),))
    start = text.index("café noir")
    changing = Changing()
    changing.tokenizer = changing  # type: ignore[assignment]
    with pytest.raises(HarnessHeadsError, match="its tokens spell ' cafe noir'"):
        span_rows(changing, made, 0, text, (start, start + len("café noir")))


def test_white_space_alone_is_no_span() -> None:
    text = "one   two"
    with pytest.raises(HarnessHeadsError, match=r"no token spells it|reaches over"):
        span_rows(processor(), rendered(text), 0, text, (3, 6))


def test_a_template_that_changes_the_text_is_refused() -> None:
    made = rendered("hello there")
    with pytest.raises(HarnessHeadsError, match="the chat template changes it"):
        span_rows(processor(), made, 0, "hello  there", (0, 5))


def test_slow_tokenizers_are_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(HarnessHeadsError, match="needs a fast tokenizer"):
        span_rows(Slow(), rendered("hello"), 0, "hello", (0, 5))


def test_answers_stand_behind_each_prompt() -> None:
    made = rendered("short", "a longer one " * 3)
    answers = [torch.tensor([7, 8, 9]), torch.tensor([5])]
    inputs = with_answers(made, answers, 0, build_config(processor().tokenizer))
    length = made.inputs["input_ids"].shape[1]
    assert inputs["input_ids"][:, length:].tolist() == [[7, 8, 9], [5, 0, 0]]
    assert inputs["attention_mask"][:, length:].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert torch.equal(inputs["attention_mask"][:, :length], made.inputs["attention_mask"])
    for name in inputs:
        if name.endswith("token_type_ids"):
            assert inputs[name].shape == inputs["input_ids"].shape
