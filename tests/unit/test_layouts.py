"""Cells of every layout kind, regions, row groups."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_heads.errors import HarnessHeadsError
from harness_heads.layouts import ImageTokens, PromptLayout, grid_cells, newline_cells, no_cells, tile_cells
from harness_heads.regions import Region


def one_image(rows: int, columns: int, size: tuple[int, int], start: int = 4, after: int = 6) -> PromptLayout:
    count = rows * columns
    image = ImageTokens(torch.arange(start, start + count), grid_cells(rows, columns), size)
    length = start + count + after
    return PromptLayout(length, (image,), (2, length - 3))


def positions(layout: PromptLayout, *boxes: tuple[float, float, float, float], rule: str = "centre") -> list[int]:
    return layout.region_tokens(Region(boxes), rule).tolist()  # type: ignore[arg-type]


def test_centre_rule_on_a_grid() -> None:
    layout = one_image(2, 3, (30, 20))
    assert positions(layout, (0, 0, 10, 10)) == [4]
    assert positions(layout, (10, 0, 30, 10)) == [5, 6]
    assert positions(layout, (0, 0, 30, 20)) == [4, 5, 6, 7, 8, 9]
    assert positions(layout, (0, 0, 10, 10), (20, 10, 30, 20)) == [4, 9]


def test_border_belongs_to_one_side_only() -> None:
    """A box that ends on a centre leaves its cell to the box that begins there."""
    layout = one_image(1, 2, (20, 10))
    assert positions(layout, (0, 0, 15, 10)) == [4]
    assert positions(layout, (5, 0, 20, 10)) == [4, 5]


@pytest.mark.parametrize(
    ("box", "tokens"),
    [((1, 1, 2, 2), [4]), ((28, 18, 29, 19), [9]), ((9, 9, 11, 11), [4, 5, 7, 8]), ((9, 1, 11.5, 2), [5])],
)
def test_box_smaller_than_a_cell_takes_what_it_overlaps_most(box: tuple[float, ...], tokens: list[int]) -> None:
    assert positions(one_image(2, 3, (30, 20)), box) == tokens  # type: ignore[arg-type]


def test_overlap_rule() -> None:
    layout = one_image(2, 3, (30, 20))
    assert positions(layout, (0, 0, 12, 10), rule="overlap") == [4, 5]
    assert positions(layout, (0, 0, 10.5, 10), rule="overlap") == [4]
    assert positions(layout, (9.9, 1, 10.1, 2), rule="overlap") == [4, 5]


def test_newline_tokens_are_in_no_region() -> None:
    cells = newline_cells(2, 2)
    image = ImageTokens(torch.arange(6), cells, (10, 10))
    assert image.inside(Region(((0, 0, 10, 10),))).tolist() == [True, True, False, True, True, False]
    assert image.inside(Region(((0, 0, 10, 10),)), "overlap").tolist() == [True, True, False, True, True, False]


def test_tiles_and_thumbnail_are_looked_up_each_on_its_own() -> None:
    """A small box falls between the centres of the thumbnail's cells and still takes one of them."""
    cells = torch.cat([tile_cells(1, 2, 2, 2), grid_cells(2, 2)])
    image = ImageTokens(torch.arange(12), cells, (40, 20), (8, 4))
    # left tile 0..3, right tile 4..7, thumbnail 8..11
    assert image.inside(Region(((0, 0, 10, 10),))).nonzero()[:, 0].tolist() == [0, 8]
    assert image.inside(Region(((30, 10, 40, 20),))).nonzero()[:, 0].tolist() == [7, 11]


def test_row_groups() -> None:
    layout = one_image(2, 3, (30, 20))
    groups = {name: rows.tolist() for name, rows in layout.groups.items()}
    assert groups == {
        "prefix": [0, 1, 2, 3],
        "image": [4, 5, 6, 7, 8, 9],
        "question": [10, 11, 12],
        "tail": [13, 14, 15],
        "last": [15],
    }
    assert layout.rows("question", "last").tolist() == [10, 11, 12, 15]
    assert layout.rows(("question", "tail")).tolist() == [10, 11, 12, 13, 14, 15]
    assert layout.rows("all").tolist() == list(range(16))
    assert layout.text_positions.tolist() == [2, 3, 10, 11, 12]


def test_groups_without_an_image() -> None:
    layout = PromptLayout(8, (), (2, 6))
    assert layout.rows("prefix").tolist() == [] and layout.rows("image").tolist() == []
    assert layout.rows("question").tolist() == [2, 3, 4, 5]


def test_unknown_group_and_regions_that_select_nothing() -> None:
    layout = one_image(2, 3, (30, 20))
    with pytest.raises(HarnessHeadsError, match="'questions' is unknown; did you mean 'question'"):
        layout.rows("questions")
    with pytest.raises(HarnessHeadsError, match=r"region 'cup'.*lies outside the 30x20 image"):
        layout.region_tokens(Region(((40, 0, 50, 10),)), name="cup")
    with pytest.raises(HarnessHeadsError, match="region 'cup': image 1 is not in the prompt"):
        layout.region_tokens(Region(((0, 0, 5, 5),), image=1), name="cup")
    blank = PromptLayout(6, (ImageTokens(torch.arange(2), no_cells(2), (10, 10)),), (0, 5))
    with pytest.raises(HarnessHeadsError, match="region 'cup': no image token lies in it"):
        blank.region_tokens(Region(((0, 0, 5, 5),)), name="cup")


def test_counts_that_do_not_fit() -> None:
    with pytest.raises(HarnessHeadsError, match="5 image tokens but 6 cells"):
        ImageTokens(torch.arange(5), grid_cells(2, 3), (30, 20))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(1, 7), st.data())
def test_every_token_lies_in_exactly_one_part_of_a_split_image(rows: int, columns: int, data: st.DataObject) -> None:
    """Cutting the image in two along a cell border splits its tokens without loss or overlap."""
    layout = one_image(rows, columns, (columns * 8, rows * 8))
    cut = data.draw(st.integers(0, columns)) * 8
    left = positions(layout, (0, 0, cut, rows * 8)) if cut else []
    right = positions(layout, (cut, 0, columns * 8, rows * 8)) if cut < columns * 8 else []
    assert sorted(left + right) == layout.image_positions.tolist()


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 29), st.floats(0, 19), st.floats(0.01, 30), st.floats(0.01, 20))
def test_every_box_on_the_image_selects_a_token(x: float, y: float, w: float, h: float) -> None:
    layout = one_image(2, 3, (30, 20))
    assert positions(layout, (x, y, min(30.0, x + w), min(20.0, y + h)))
