"""Settings, passes, options, samples and strips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness_heads.discovery.corpora.strips import COMIC_WORDING, GAP, HEIGHT, stitch
from harness_heads.discovery.design import (
    OPTION_HELP,
    Options,
    Pass,
    corpus_settings,
    paper_settings,
    parse_setting,
    passes,
)
from harness_heads.discovery.samples import (
    Ask,
    CorruptImageError,
    Sample,
    boxes_region,
    choose,
    open_image,
    phrase_in,
)
from harness_heads.errors import HarnessHeadsError

CAPTIONS = ["a cat sleeps", "a dog runs", "rain falls", "the sun rises", "a boat sails", "snow melts"]


def panels(count: int = 6) -> list[Image.Image]:
    return [Image.new("RGB", (200 + 60 * i, 300), (40 * i, 90, 160)) for i in range(count)]


def test_the_twelve_settings_need_four_passes() -> None:
    settings = paper_settings()
    assert len({s.name for s in settings}) == 12
    assert {s.name for s in settings} >= {"cm-ord-last", "co-ref-qsp", "co-ref-out"}
    grouped = passes(settings)
    assert list(grouped) == [Pass("cm", "ord"), Pass("cm", "ref"), Pass("co", "ord"), Pass("co", "ref")]
    assert all([s.source for s in wanted] == ["last", "qsp", "out"] for wanted in grouped.values())


def test_names_read_back_and_repeats_count_once() -> None:
    for setting in (*paper_settings(), *corpus_settings("dg")):
        assert parse_setting(setting.name) == setting
    twice = [parse_setting("dg-ref-qsp")] * 2
    assert passes(twice) == {Pass("dg", "ref"): [parse_setting("dg-ref-qsp")]}


@pytest.mark.parametrize("name", ["co-ref-qspan", "co-ref", "coco-ref-qsp", ""])
def test_unknown_settings_are_named(name: str) -> None:
    with pytest.raises(HarnessHeadsError, match=f"unknown setting '{name}'"):
        parse_setting(name)
    with pytest.raises(HarnessHeadsError, match="did you mean 'co-ref-qsp'"):
        parse_setting("co-ref-qspan")


def test_every_option_is_explained_and_checked() -> None:
    assert set(OPTION_HELP) == set(Options().to_dict())
    with pytest.raises(HarnessHeadsError, match="did you mean 'consume'"):
        Options(out_row="consum")
    with pytest.raises(HarnessHeadsError, match="max_new_tokens=0"):
        Options(max_new_tokens=0)


def test_strips_are_stitched_as_the_public_code_does() -> None:
    strip, regions = stitch(panels(), "strip")
    widths = [round((200 + 60 * i) * 256 / 300 / 32) * 32 for i in range(6)]
    assert strip.size == (sum(widths), HEIGHT)
    edges = [regions[f"panel {i}"].boxes[0] for i in range(1, 7)]
    assert [box[2] - box[0] for box in edges] == widths
    assert edges[0][0] == 0 and edges[-1][2] == strip.width
    pixels = np.asarray(strip)
    border = widths[0]
    gap = pixels[:, border - GAP // 2 : border + GAP // 2]
    assert (gap == 255).all()
    assert not (pixels[:, border - GAP // 2 - 1] == 255).all() and not (pixels[:, border + GAP // 2] == 255).all()


def test_a_strip_with_five_panels_is_named() -> None:
    with pytest.raises(HarnessHeadsError, match="comic 7: a strip has 6 panels, this one has 5"):
        stitch(panels(5), "comic 7")


def test_ordinal_and_referring_asks_mark_their_phrase() -> None:
    ordinal = COMIC_WORDING.asks(CAPTIONS, "ord", "strip")
    assert [a.phrase for a in ordinal][:2] == ["the 1st panel from the left", "the 2nd panel from the left"]
    assert ordinal[0].answer == CAPTIONS[0]
    referring = COMIC_WORDING.asks(CAPTIONS, "ref", "strip")
    assert [a.phrase for a in referring] == CAPTIONS
    assert [a.target for a in referring] == [f"panel {i}" for i in range(1, 7)]
    assert referring[3].answer == "4th"


@pytest.mark.parametrize(
    ("captions", "words"),
    [
        (None, "needs captions"),
        (CAPTIONS[:5], "5 captions for 6 panels"),
        ([*CAPTIONS[:5], CAPTIONS[0]], "two panels share the caption 'a cat sleeps'"),
        ([*CAPTIONS[:5], "  "], "caption of panel 6 is empty"),
    ],
)
def test_captions_that_cannot_refer(captions: list[str] | None, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        COMIC_WORDING.asks(captions, "ref", "strip")


def test_a_smaller_n_takes_a_prefix() -> None:
    assert choose(50, 7, 3, "x") == choose(50, 20, 3, "x")[:7]
    assert choose(50, 50, 3, "x") != choose(50, 50, 4, "x")
    assert sorted(choose(50, 50, 3, "x")) == list(range(50))


@pytest.mark.parametrize(
    ("size", "n", "words"), [(0, 1, "is empty"), (5, 6, "n=6 .* holds 5"), (5, 0, "n=0"), (5, -1, "n=-1")]
)
def test_sizes_that_cannot_be_had(size: int, n: int, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        choose(size, n, 0, "comics")


def test_corrupt_images_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    Image.new("RGB", (64, 64), "red").save(broken)
    broken.write_bytes(broken.read_bytes()[:60])
    for source in (broken, tmp_path / "absent.png", None):
        with pytest.raises(CorruptImageError, match="strip 4, panel 2"):
            open_image(source, "strip 4, panel 2")


@pytest.mark.parametrize(
    ("box", "words"),
    [((200.0, 0.0, 240.0, 10.0), "outside the 100x50 image"), ((10.0, 10.0, 10.0, 20.0), "has no area")],
)
def test_boxes_that_cannot_be(box: tuple[float, ...], words: str) -> None:
    picture = Image.new("RGB", (100, 50))
    with pytest.raises(HarnessHeadsError, match=words):
        Sample("s", "s", (picture,), {"r": boxes_region([box])}, (Ask("where is it?", (9, 11), "r"),))


def test_samples_check_their_parts() -> None:
    picture = Image.new("RGB", (100, 50))
    region = boxes_region([(0, 0, 50, 50)])
    with pytest.raises(HarnessHeadsError, match="no region 'q'"):
        Sample("s", "s", (picture,), {"r": region}, (Ask("it", (0, 2), "q"),))
    with pytest.raises(HarnessHeadsError, match="no query"):
        Sample("s", "s", (picture,), {"r": region}, ())
    with pytest.raises(HarnessHeadsError, match="of image 1, which is not there"):
        Sample("s", "s", (picture,), {"r": boxes_region([(0, 0, 9, 9)], 1)}, (Ask("it", (0, 2), "r"),))
    with pytest.raises(HarnessHeadsError, match="does not lie in it"):
        Ask("it", (0, 3), "r")


def test_phrases_fill_a_template_once() -> None:
    assert phrase_in("find {} now", "the cat") == ("find the cat now", (5, 12))
    with pytest.raises(HarnessHeadsError, match=r"no {} for the phrase"):
        phrase_in("find it", "the cat")
