"""Boxes and points as each family writes them, with the frame fixed per family."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_heads.boxes import FORMATS, parse_box, parse_points, share_inside, write_box
from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import iou

SHOWN = (640, 428)
RESIZED = (644, 420)


@pytest.mark.parametrize(
    ("name", "text", "box"),
    [
        ("qwen3_vl", '```json\n[\n\t{"bbox_2d": [250, 500, 500, 1000], "label": "cup"}\n]\n```', (160, 214, 320, 428)),
        ("qwen3_vl", "[250, 500, 500, 1000]", (160, 214, 320, 428)),
        ("qwen3_vl", "250, 500, 500, 1000", (160, 214, 320, 428)),
        ("qwen3_vl", "<think>maybe [0,0,9,9]</think>[250, 500, 500, 1000]", (160, 214, 320, 428)),
        ("qwen3_vl", "(250,500),(500,1000)", (160, 214, 320, 428)),
        ("qwen3_vl", "[500, 1000, 250, 500]", (160, 214, 320, 428)),
        ("qwen3_vl", "[250, 500, 500, 1200]", (160, 214, 320, 428)),
        ("qwen3_vl", '[{"bbox_2d": [250, 500, 500, 1000]}, {"bbox_2d": [0, 0, 9, 9]}]', (160, 214, 320, 428)),
        ("qwen2_5_vl", '[{"bbox_2d": [161, 210, 322, 420]}]', (160, 214, 320, 428)),
        ("qwen2_vl", "<|box_start|>(250,500),(500,1000)<|box_end|>", (160, 214, 320, 428)),
        ("internvl", "<ref>cup</ref><box>[[250, 500, 500, 1000]]</box>", (160, 214, 320, 428)),
        ("internvl", "cup[[250, 500, 500, 1000]]", (160, 214, 320, 428)),
        ("glm4v", "<think>so</think><|begin_of_box|>[[250,500,500,1000]]<|end_of_box|>", (160, 214, 320, 428)),
        ("glm4v", "<|begin_of_box|><250,500,500,1000><|end_of_box|>", (160, 214, 320, 428)),
        ("paligemma", "<loc0512><loc0256><loc1023><loc0512> cup", (160, 214, 320, 427.582)),
        ("deepseek_vl2", "<|ref|>cup<|/ref|><|det|>[[0, 0, 999, 999]]<|/det|>", (0, 0, 640, 428)),
        ("llava", "[0.25, 0.5, 0.50, 1.0]", (160, 214, 320, 428)),
        ("llava_square", "[0.25, 0.5, 0.5, 0.834375]", (160, 214, 320, 428)),
    ],
)
def test_box_of_each_family(name, text, box):
    assert parse_box(text, name, SHOWN, RESIZED) == pytest.approx(box, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "There is no such object.",
        "[1, 2, 3]",
        "[100, 100, 100, 200]",
        "[1100, 1100, 1200, 1200]",
        "[nan, 0, 10, 10]",
        "<think>I see [1, 2, 30, 40]",
        "point (5, 6)",
    ],
)
def test_no_box(text):
    assert parse_box(text, "qwen3_vl", SHOWN) is None


def test_frame_is_not_guessed_from_the_numbers():
    assert parse_box("[0.25, 0.5, 0.5, 1.0]", "qwen3_vl", SHOWN) != parse_box("[0.25, 0.5, 0.5, 1.0]", "llava", SHOWN)
    small = parse_box("[0.25, 0.5, 0.5, 1.0]", "qwen3_vl", SHOWN)
    assert small is not None and max(small) < 1


def test_resized_frame_needs_the_size():
    with pytest.raises(HarnessHeadsError, match="resized"):
        parse_box("[1, 2, 3, 4]", "qwen2_5_vl", SHOWN)


def test_unknown_format_is_named():
    with pytest.raises(HarnessHeadsError, match="did you mean 'qwen3_vl'"):
        parse_box("", "qwen3vl", SHOWN)


@given(
    st.sampled_from(sorted(FORMATS)),
    st.tuples(st.integers(100, 900), st.integers(100, 900)),
    st.tuples(st.floats(0, 0.6), st.floats(0, 0.6), st.floats(0.2, 0.4), st.floats(0.2, 0.4)),
)
def test_what_is_written_is_read_back(name, shown, parts):
    w, h = shown
    box = (parts[0] * w, parts[1] * h, (parts[0] + parts[2]) * w, (parts[1] + parts[3]) * h)
    resized = (math.ceil(w / 28) * 28, math.ceil(h / 28) * 28)
    text = write_box(box, name, shown, resized, "the cup")
    back = parse_box(text, name, shown, resized)
    # the coarsest frame has hundredths of the image's longer side
    assert back is not None
    assert max(abs(a - b) for a, b in zip(box, back, strict=True)) <= 0.006 * max(w, h) + 0.51
    assert iou(box, back) > 0.6


def test_points():
    assert parse_points("[(0.5, 0.25)]", "llava", (100, 200)) == [(50.0, 50.0)]
    assert parse_points('[{"point_2d": [500, 250], "label": "mug"}]', "qwen3_vl", (100, 200)) == [(50.0, 50.0)]
    assert parse_points("[[0, 0, 1000, 500]]", "internvl", (100, 200)) == [(50.0, 50.0)]
    assert parse_points("(1200, 100), (500, 500)", "qwen3_vl", (100, 100)) == [(120.0, 10.0), (50.0, 50.0)]
    assert parse_points("no idea", "qwen3_vl", (100, 100)) == []


def test_share_inside():
    assert share_inside([(5, 5), (50, 50)], [(0, 0, 10, 10)]) == 0.5
    assert share_inside([(5, 5), (50, 50)], [(0, 0, 10, 10), (50, 50, 51, 51)]) == 1.0
    assert share_inside([(10, 5)], [(0, 0, 10, 10)]) == 0.0
    assert share_inside([], (0, 0, 10, 10)) == 0.0
