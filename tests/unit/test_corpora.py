"""Corpora: recipes on small made-up copies, the user's own, and what is wrong with each."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from harness_heads.discovery.corpora import box_corpus, method_corpus, strip_corpus
from harness_heads.discovery.corpora.digits import Digits
from harness_heads.discovery.corpora.strips import PANELS
from harness_heads.discovery.samples import CorruptImageError
from harness_heads.errors import HarnessHeadsError
from harness_heads.tiny import data, wording

PROMPT = "Locate {expression} in this image."


def png(size: tuple[int, int] = (96, 64), colour: object = "red", mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, "PNG")  # type: ignore[arg-type]
    return buffer.getvalue()


def saved(folder: Path, columns: dict[str, list[Any]], images: tuple[str, ...], split: str) -> Path:
    features = datasets.Dataset.from_dict(
        {k: [{"bytes": b, "path": None} for b in v] if k in images else v for k, v in columns.items()}
    )
    for name in images:
        features = features.cast_column(name, datasets.Image(decode=False)).cast_column(name, datasets.Image())
    folder.mkdir(parents=True, exist_ok=True)
    features.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return folder


def comics(folder: Path, rows: int = 3, corrupt: int | None = None) -> Path:
    columns: dict[str, list[Any]] = {"comic_id": list(range(rows))}
    for i in range(1, PANELS + 1):
        columns[f"panel_{i}"] = [b"no image" if (r, i) == (corrupt, 2) else png((64 + 32 * i, 64)) for r in range(rows)]
        columns[f"caption_{i}"] = [f"Caption {i} of comic {r}." for r in range(rows)]
    return saved(folder, columns, tuple(f"panel_{i}" for i in range(1, PANELS + 1)), "train")


def test_comics_are_stitched_from_their_panels(tmp_path: Path) -> None:
    corpus = strip_corpus("cm", 0, comics(tmp_path))
    assert len(corpus) == 3
    sample = corpus.sample(1, "ref")
    assert sample.images[0].height == 256
    assert [a.phrase for a in sample.asks] == [f"Caption {i} of comic 1." for i in range(1, 7)]
    assert sorted(sample.regions) == [f"panel {i}" for i in range(1, 7)]
    assert sample.regions["panel 6"].boxes[0][2] == sample.images[0].width
    assert corpus.sample(1, "ord").asks[0].phrase == "the 1st panel from the left"
    assert corpus.provenance["dataset"] == "baulab/openai-comic-strips"


def test_a_corrupt_panel_is_named(tmp_path: Path) -> None:
    corpus = strip_corpus("cm", 0, comics(tmp_path, corrupt=2))
    corpus.sample(0, "ref")
    with pytest.raises(CorruptImageError, match="comic 2, panel 2"):
        corpus.sample(2, "ref")


def test_local_copies_are_found_under_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comics(tmp_path / "baulab" / "openai-comic-strips")
    monkeypatch.setenv("HARNESS_HEADS_DATA", str(tmp_path))
    assert len(strip_corpus("cm", 0)) == 3


def test_coco_strips_deal_every_photograph_once(tmp_path: Path) -> None:
    rows = 20
    folder = saved(
        tmp_path,
        {
            "image": [png((96, 64), (i * 10, 0, 0)) for i in range(rows)],
            "answer": [[f"photograph number {i}", "another caption"] for i in range(rows)],
            "file_name": [f"{i:012d}.jpg" for i in range(rows)],
        },
        ("image",),
        "val",
    )
    corpus = strip_corpus("co", 5, folder)
    assert len(corpus) == 3
    phrases = [a.phrase for i in range(3) for a in corpus.sample(i, "ref").asks]
    assert len(set(phrases)) == 18
    assert phrases[:6] != [a.phrase for a in strip_corpus("co", 6, folder).sample(0, "ref").asks]
    assert phrases[:6] == [a.phrase for a in strip_corpus("co", 5, folder).sample(0, "ref").asks]


def refcoco(folder: Path) -> Path:
    return saved(
        folder,
        {
            "image": [png((200, 100))] * 3,
            "answer": [["red cup"], ["left man", "man in blue"], ["tree"]],
            "bbox": [[10.0, 20.0, 30.0, 40.0], [0.0, 0.0, 100.0, 100.0], [150.0, 50.0, 50.0, 50.0]],
            "file_name": [f"COCO_train2014_00000000000{i // 2}_{i}.jpg" for i in range(3)],
            "question": ["constant"] * 3,
        },
        ("image",),
        "val",
    )


def test_refcoco_boxes_are_xywh_and_expressions_are_the_answers(tmp_path: Path) -> None:
    corpus = box_corpus("refcoco", 0, PROMPT, refcoco(tmp_path))
    first, second = corpus.sample(0, "loc"), corpus.sample(1, "loc")
    assert first.regions["referent"].boxes == ((10.0, 20.0, 40.0, 60.0),)
    assert first.asks[0].text == "Locate red cup in this image."
    assert first.asks[0].phrase == "red cup"
    assert second.asks[0].phrase in ("left man", "man in blue")
    assert first.cluster == second.cluster == "COCO_train2014_000000000000"
    assert corpus.sample(2, "loc").cluster != first.cluster
    with pytest.raises(HarnessHeadsError, match="asked for boxes, not 'ref'"):
        corpus.sample(0, "ref")


def test_refspatial_takes_the_masks_bounding_box(tmp_path: Path) -> None:
    mask = np.zeros((64, 96), dtype=np.uint8)
    mask[10:20, 30:50] = 255
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    empty = png((96, 64), 0, "L")
    folder = saved(
        tmp_path,
        {"id": [1, 2], "image": [png()] * 2, "mask": [buffer.getvalue(), empty], "object": ["the leftmost mug"] * 2},
        ("image", "mask"),
        "location",
    )
    corpus = box_corpus("refspatial", 0, PROMPT, folder)
    assert corpus.sample(0, "loc").regions["referent"].boxes == ((30.0, 10.0, 50.0, 20.0),)
    with pytest.raises(CorruptImageError, match="its mask is empty"):
        corpus.sample(1, "loc")


def test_toloka_needs_its_pictures(tmp_path: Path) -> None:
    folder = saved(
        tmp_path,
        {
            "image": ["https://cdn.invalid/w/000000000001.jpg"],
            "question": ["What do we drive?"],
            "left": [5],
            "top": [6],
            "right": [50],
            "bottom": [60],
        },
        (),
        "train_sample",
    )
    corpus = box_corpus("toloka", 0, PROMPT, folder)
    with pytest.raises(CorruptImageError, match=r"000000000001\.jpg.*does not exist"):
        corpus.sample(0, "loc")
    (folder / "images").mkdir()
    (folder / "images" / "000000000001.jpg").write_bytes(png())
    assert corpus.sample(0, "loc").regions["referent"].boxes == ((5.0, 6.0, 50.0, 60.0),)


@pytest.mark.parametrize(
    ("name", "words"),
    [("refcocoo", "did you mean 'refcoco'"), ("refcoco", "no column image, answer, bbox, file_name")],
)
def test_unknown_corpora_and_missing_columns(tmp_path: Path, name: str, words: str) -> None:
    folder = saved(tmp_path, {"other": [1]}, (), "val")
    with pytest.raises(HarnessHeadsError, match=words):
        box_corpus(name, 0, PROMPT, folder)


def test_a_family_without_a_grounding_prompt_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="no documented grounding prompt"):
        box_corpus("refcoco", 0, "", refcoco(tmp_path))


def test_an_absent_copy_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="does not exist"):
        strip_corpus("cm", 0, tmp_path / "absent")
    with pytest.raises(HarnessHeadsError, match="no parquet file"):
        strip_corpus("cm", 0, tmp_path)


def test_digit_strips_come_from_the_discover_split_alone() -> None:
    corpus = Digits(3)
    images, labels = data.digits("discover")
    assert corpus.provenance["images"] == len(images)
    sample = corpus.sample(4, "ref")
    again, other = Digits(3).sample(4, "ord"), Digits(4).sample(4, "ref")
    assert np.array_equal(np.asarray(sample.images[0]), np.asarray(again.images[0]))
    assert not np.array_equal(np.asarray(sample.images[0]), np.asarray(other.images[0]))
    assert sample.images[0].size == (384, 64)
    digits = [wording.DIGITS.index(a.text.rstrip("?").split()[-1]) for a in sample.asks]
    assert len(set(digits)) == 6
    strip = np.asarray(sample.images[0].convert("L"))
    for panel, digit in enumerate(digits):
        shown = strip[:, panel * 64 : panel * 64 + 64]
        # the glyph of some image of that class in the split, wherever the shift put it
        sizes = {int(np.asarray(data.glyph(images[i])).sum()) for i in np.flatnonzero(labels == digit)}
        assert int(shown.sum()) in sizes


def test_digit_answers_for_teacher_forcing() -> None:
    corpus = Digits(0)
    ref, order, loc = (corpus.sample(0, q) for q in ("ref", "ord", "loc"))
    assert ref.asks[2].answer == "third"
    assert order.asks[2].text == "Which digit is in the third panel?"
    assert order.asks[2].answer in wording.DIGITS
    assert loc.asks[0].answer == wording.box_answer(0, 0, 167, 1000)
    with pytest.raises(HarnessHeadsError, match="no query 'what'"):
        corpus.sample(0, "what")


def write(folder: Path, text: str) -> Path:
    for name in "abcdef":
        (folder / f"{name}.png").write_bytes(png((64, 64)))
    (folder / "corpus.yaml").write_text(text)
    return folder


STRIPS = "kind: strips\nitems:\n  - panels: [a.png, b.png, c.png, d.png, e.png, f.png]\n"
CAPTIONED = STRIPS + "    captions: [one, two, three, four, five, six]\n"
BOXES = "kind: boxes\nitems:\n  - image: a.png\n    phrase: the red cup\n    boxes: [[10, 20, 40, 60]]\n"


def test_the_users_strips(tmp_path: Path) -> None:
    corpus = strip_corpus("us", 0, write(tmp_path, CAPTIONED))
    assert [a.phrase for a in corpus.sample(0, "ref").asks] == ["one", "two", "three", "four", "five", "six"]
    assert len(corpus.sample(0, "ord").asks) == 6


def test_the_users_folders_of_six_pictures(tmp_path: Path) -> None:
    for name in ("second", "first"):
        (tmp_path / name).mkdir()
        for i in range(1, 7):
            (tmp_path / name / f"p{i}.png").write_bytes(png((64, 64)))
    (tmp_path / "first" / "captions.txt").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    corpus = strip_corpus("us", 0, tmp_path)
    assert len(corpus) == 2
    assert corpus.sample(0, "ref").asks[5].phrase == "six"
    assert corpus.sample(1, "ord").cluster == "second"
    with pytest.raises(HarnessHeadsError, match="item 2: a referring query needs captions"):
        corpus.sample(1, "ref")
    (tmp_path / "first" / "p6.png").unlink()
    with pytest.raises(HarnessHeadsError, match="item 1: a strip has 6 panels, this one has 5"):
        strip_corpus("us", 0, tmp_path).sample(0, "ord")


def test_the_users_boxes(tmp_path: Path) -> None:
    corpus = box_corpus("user", 0, PROMPT, write(tmp_path, BOXES))
    sample = corpus.sample(0, "loc")
    assert sample.asks[0].text == "Locate the red cup in this image."
    own = box_corpus("user", 0, "", write(tmp_path, BOXES + "    text: Where is the red cup?\n    answer: here\n"))
    assert own.sample(0, "loc").asks[0].phrase == "the red cup"
    assert own.sample(0, "loc").asks[0].answer == "here"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STRIPS.replace(", f.png", ""), "item 1: a strip has 6 panels, this one has 5"),
        (STRIPS, "needs captions"),
        (STRIPS.replace("f.png", "absent.png") + "    captions: [1, 2, 3, 4, 5, 6]\n", "absent.png.*does not exist"),
        (CAPTIONED.replace("captions", "caption"), "unknown key 'caption'; did you mean 'captions'"),
        ("kind: strips\nitems: []\n", ""),
        ("kind: stripes\nitems: []\n", "kind is strips or boxes, not 'stripes'"),
        ("kind: strips\nitem: []\n", "unknown key 'item'"),
        ("kind: strips\n", "items is a list"),
        (CAPTIONED + "wording: {ordinals: x}\n", "wording: unknown key 'ordinals'; did you mean 'ordinal'"),
        (CAPTIONED + "wording: {referring: Which one}\n", "wording 'Which one' has no {} for the phrase"),
        (CAPTIONED + "wording: Which one is {}?\n", "wording: it is no mapping of keys"),
        ("- 1\n", "must hold kind and items"),
        ("kind: [\n", "is not YAML"),
    ],
)
def test_what_is_wrong_with_the_users_strips(tmp_path: Path, text: str, words: str) -> None:
    folder = write(tmp_path, text)
    if not words:
        assert len(strip_corpus("us", 0, folder)) == 0
        return
    with pytest.raises(HarnessHeadsError, match=words):
        strip_corpus("us", 0, folder).sample(0, "ref")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOXES.replace("    phrase: the red cup\n", ""), "item 1: no phrase"),
        (BOXES.replace("[[10, 20, 40, 60]]", "[[100, 20, 140, 60]]"), "outside the 64x64 image"),
        (BOXES.replace("[[10, 20, 40, 60]]", "[[40, 20, 10, 60]]"), "item 1: .*has no area"),
        (BOXES.replace("[[10, 20, 40, 60]]", "[10, 20]"), r"a list of \[x0, y0, x1, y1\]"),
        (BOXES.replace("[[10, 20, 40, 60]]", "[]"), "item 1: .*box"),
        (BOXES.replace("the red cup", '""'), "item 1: its phrase is empty"),
        (BOXES + "    text: a cup and a cup\n", "occurs 0 times"),
    ],
)
def test_what_is_wrong_with_the_users_boxes(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        box_corpus("user", 0, PROMPT, write(tmp_path, text)).sample(0, "loc")


def test_a_corpus_with_another_picture_or_caption_is_another_corpus(tmp_path: Path) -> None:
    """The digest stands in a run's fingerprint: what was read of the old picture is not mixed with the new one."""
    (tmp_path / "yaml").mkdir()
    seen = [strip_corpus("us", 0, write(tmp_path / "yaml", CAPTIONED)).provenance["sha256"]]
    (tmp_path / "yaml" / "c.png").write_bytes(png((64, 32)))
    seen.append(strip_corpus("us", 0, tmp_path / "yaml").provenance["sha256"])
    folder = tmp_path / "folders" / "one"
    folder.mkdir(parents=True)
    for name in "abcdef":
        (folder / f"{name}.png").write_bytes(png((64, 64)))
    seen.append(strip_corpus("us", 0, folder.parent).provenance["sha256"])
    assert strip_corpus("us", 0, folder.parent).provenance["sha256"] == seen[-1]
    (folder / "captions.txt").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    seen.append(strip_corpus("us", 0, folder.parent).provenance["sha256"])
    (folder / "f.png").write_bytes(png((32, 64)))
    seen.append(strip_corpus("us", 0, folder.parent).provenance["sha256"])
    assert len(set(seen)) == 5


def test_the_user_is_asked_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="give --data"):
        strip_corpus("us", 0)
    with pytest.raises(HarnessHeadsError, match="does not exist"):
        strip_corpus("us", 0, tmp_path / "absent.yaml")


def test_methods_run_on_strips_by_their_query(tmp_path: Path) -> None:
    corpus, query = method_corpus("dg-ord", 0, PROMPT)
    assert (corpus.name, query) == ("digits", "ord")
    assert method_corpus("digits", 0, PROMPT)[1] == "loc"
    with pytest.raises(HarnessHeadsError, match="did you mean 'co-ref'"):
        method_corpus("co-reff", 0, PROMPT)
