"""Questions, their tokens, and the one prompt rendering."""

import numpy as np
import pytest
from transformers import Qwen3VLProcessor

from harness_heads.tiny import data, wording
from harness_heads.tiny.box import iou, parse_box
from harness_heads.tiny.encode import PREFIX, TAIL, Encoder
from harness_heads.tiny.items import Scene, cell_box
from harness_heads.tiny.processor import build_processor


@pytest.fixture(scope="module")
def processor() -> Qwen3VLProcessor:
    return build_processor()


def test_mcq_has_four_lettered_lines() -> None:
    assert wording.mcq("Q?", ("one", "two", "three", "four")) == "Q?\nA. one\nB. two\nC. three\nD. four"


def test_spans_cover_the_phrases() -> None:
    for digit in range(10):
        start, end = wording.referring_span(digit)
        assert wording.referring(digit)[start:end] == f"the digit {wording.DIGITS[digit]}"
    start, end = wording.ordinal_span(2)
    assert wording.ordinal(2)[start:end] == "the third panel"
    with pytest.raises(ValueError, match="not part of"):
        wording.span_of("Which?", "the digit")


def test_answers_and_question_words_are_single_tokens(processor: Qwen3VLProcessor) -> None:
    words = [*wording.DIGITS, *wording.ORDINALS, *wording.LETTERS]
    words += [f" {word}" for word in (*wording.DIGITS, *wording.ORDINALS, "top", "bottom", "left", "right")]
    ids = [processor.tokenizer(word).input_ids for word in words]
    assert all(len(one) == 1 for one in ids)
    assert len({one[0] for one in ids}) == len(words)


@pytest.mark.parametrize("text", ["naïve 猫 ß", wording.locate(3), "x1000y ]}]", wording.box_answer(0, 167, 500, 1000)])
def test_any_text_survives_the_tokenizer(processor: Qwen3VLProcessor, text: str) -> None:
    assert processor.tokenizer.decode(processor.tokenizer(text).input_ids) == text


def test_boxes_are_short_and_parse(processor: Qwen3VLProcessor) -> None:
    box = cell_box(Scene(np.arange(6)), 2)
    assert box == (333, 0, 500, 1000)
    assert cell_box(Scene(np.arange(4)), 3) == (500, 500, 1000, 1000)
    text = wording.box_answer(*box)
    assert len(processor.tokenizer(text).input_ids) == 12
    assert parse_box(text) == box
    assert parse_box(text + " and more") is None and parse_box("[]") is None


def test_iou_is_exact() -> None:
    assert iou((0, 0, 10, 10), (0, 0, 10, 10)) == 1
    assert iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert iou((0, 0, 10, 10), (10, 0, 20, 10)) == 0
    assert iou((0, 0, 0, 0), (0, 0, 0, 0)) == 0


@pytest.mark.parametrize(
    ("picture", "tokens"),
    [((64, 64), 4), ((128, 128), 16), ((384, 64), 24)],
)
def test_prompt_is_what_the_host_sends(processor: Qwen3VLProcessor, picture: tuple[int, int], tokens: int) -> None:
    """System turn, picture and question through the chat template and the host's own image preparation."""
    from qwen_vl_utils import process_vision_info

    question = wording.mcq(wording.SINGLE, ("one", "two", "three", "four"))
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "You are a helpful assistant."}]},
        {
            "role": "user",
            "content": [{"type": "image", "image": data.blank(picture)}, {"type": "text", "text": question}],
        },
    ]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images, _, options = process_vision_info(
        messages, return_video_kwargs=True, image_patch_size=16, return_video_metadata=True
    )
    assert [image.size for image in images] == [picture]
    inputs = processor(text=[text], images=images, do_resize=False, return_tensors="pt", **options)
    assert text == PREFIX + "<|image_pad|><|vision_end|>" + question + TAIL
    encoder = Encoder(processor.tokenizer)
    image = int(processor.image_token_id)
    wanted = [*encoder.prefix.tolist(), *[image] * tokens, encoder.vision_end, *encoder.prompt(question)]
    assert inputs.input_ids[0].tolist() == wanted
