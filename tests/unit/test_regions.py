"""Regions in pixels, and images made safe: every input that is known to break things."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from harness_heads.errors import HarnessHeadsError
from harness_heads.regions import Region, check_size, decode, grid_cells, image_sha, iou, region_from_dict, safe_image

SIDE = 32


def reopened(image: Image.Image, form: str, **options: object) -> Image.Image:
    """What a reader of the file gets."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    opened = Image.open(io.BytesIO(buffer.getvalue()))
    opened.load()
    return opened


def pixel(image: Image.Image, x: int = 3, y: int = 3) -> tuple[int, ...]:
    value = image.getpixel((x, y))
    assert isinstance(value, tuple)
    return value


def test_palette_with_transparency_becomes_white():
    image = Image.new("P", (SIDE, SIDE), 1)
    image.putpalette([0, 0, 0, 255, 0, 0] + [0] * 762)
    opened = reopened(image, "PNG", transparency=1)
    assert opened.mode == "P"
    assert pixel(safe_image(opened, "x")) == (255, 255, 255)


@pytest.mark.parametrize(("mode", "hidden"), [("RGBA", (10, 20, 30, 0)), ("LA", (10, 0))])
def test_hidden_colour_stays_hidden(mode, hidden):
    opened = reopened(Image.new(mode, (SIDE, SIDE), hidden), "PNG")
    assert pixel(safe_image(opened, "x")) == (255, 255, 255)


def test_half_transparency_is_mixed_with_white():
    opened = reopened(Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 128)), "PNG")
    assert pixel(safe_image(opened, "x"))[0] == pytest.approx(127, abs=1)


def test_colour_key_of_an_rgb_png_is_transparent():
    opened = reopened(Image.new("RGB", (SIDE, SIDE), (1, 2, 3)), "PNG", transparency=(1, 2, 3))
    assert pixel(safe_image(opened, "x")) == (255, 255, 255)


@pytest.mark.parametrize(("value", "grey"), [(0, 0), (65535, 255), (32768, 128), (300, 1)])
def test_sixteen_bit_grey_is_scaled_not_saturated(value, grey):
    image = Image.fromarray(np.full((SIDE, SIDE), value, np.uint16))
    opened = reopened(image, "PNG")
    assert opened.mode.startswith("I")
    shown = pixel(safe_image(opened, "x"))
    assert shown == (shown[0],) * 3
    assert shown[0] == pytest.approx(grey, abs=1)


@pytest.mark.parametrize(("values", "grey"), [(0.5, 128), (200.0, 200), (math.nan, 0)])
def test_float_images(values, grey):
    image = Image.fromarray(np.full((SIDE, SIDE), values, np.float32))
    assert pixel(safe_image(image, "x"))[0] == pytest.approx(grey, abs=1)


def test_one_bit_and_grey():
    assert pixel(safe_image(Image.new("1", (SIDE, SIDE), 1), "x")) == (255, 255, 255)
    assert pixel(safe_image(Image.new("L", (SIDE, SIDE), 77), "x")) == (77, 77, 77)


def test_cmyk():
    red = pixel(safe_image(reopened(Image.new("CMYK", (SIDE, SIDE), (0, 255, 255, 0)), "TIFF"), "x"))
    assert red[0] > 200 and red[1] < 60 and red[2] < 60


def test_exif_rotation_is_applied():
    image = Image.new("RGB", (60, 40), "black")
    image.paste("white", (0, 0, 60, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise: the top edge becomes the right one
    shown = safe_image(reopened(image, "JPEG", exif=exif, quality=95), "x")
    assert shown.size == (40, 60)
    assert pixel(shown, 38, 30)[0] > 200
    assert pixel(shown, 5, 30)[0] < 50


@pytest.mark.parametrize("size", [(400, 1), (1, 1), (27, 100), (100, 27)])
def test_thin_images_are_refused_by_name(size):
    with pytest.raises(HarnessHeadsError, match=r"row 7: .* px"):
        safe_image(Image.new("RGB", size), "row 7")


def test_aspect_ratio_200_passes_and_201_does_not():
    assert safe_image(Image.new("RGB", (200 * 28, 28)), "x").size == (5600, 28)
    with pytest.raises(HarnessHeadsError, match="more elongated than 200:1"):
        check_size(201 * 28, 28, "x")


def test_sha_follows_the_pixels():
    a, b = Image.new("RGB", (SIDE, SIDE), "red"), Image.new("RGB", (SIDE, SIDE), "red")
    assert image_sha(a) == image_sha(b)
    b.putpixel((0, 0), (254, 0, 0))
    assert image_sha(a) != image_sha(b)
    assert image_sha(a) != image_sha(a.resize((SIDE, SIDE + 1)))


@pytest.mark.parametrize(
    "box",
    [(0, 0, 0, 5), (5, 5, 1, 9), (math.nan, 0, 1, 1), (0, 0, math.inf, 1)],
)
def test_bad_boxes_are_refused(box):
    with pytest.raises(HarnessHeadsError, match="region"):
        Region((box,))


def test_no_box_is_no_region():
    with pytest.raises(HarnessHeadsError, match="no box"):
        Region(())


def test_regions_are_clipped_and_refused_outside():
    assert Region(((-5, -5, 10, 10),)).inside(8, 8, "x").boxes == ((0, 0, 8, 8),)
    with pytest.raises(HarnessHeadsError, match=r"item 3: box .* outside"):
        Region(((20, 20, 30, 30),)).inside(8, 8, "item 3")


def test_region_round_trip():
    region = Region(((1, 2, 3, 4), (5, 6, 7, 8)), image=1)
    assert region_from_dict(region.to_dict()) == region


def test_grid_cells_cover_the_image_once():
    cells = grid_cells(128, 128, 2, 2)
    assert cells == ((0, 0, 64, 64), (64, 0, 128, 64), (0, 64, 64, 128), (64, 64, 128, 128))
    assert sum((c[2] - c[0]) * (c[3] - c[1]) for c in grid_cells(100, 70, 3, 7)) == pytest.approx(7000)


def test_iou():
    assert iou((0, 0, 2, 2), (0, 0, 2, 2)) == 1.0
    assert iou((0, 0, 2, 2), (2, 0, 4, 2)) == 0.0
    assert iou((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)


def test_a_truncated_image_is_refused_even_where_pillow_was_told_to_fill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cut.png"
    Image.effect_noise((64, 64), 50).save(path)
    path.write_bytes(path.read_bytes()[:600])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(OSError, match="truncated"):
        decode(Image.open(path))
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True
