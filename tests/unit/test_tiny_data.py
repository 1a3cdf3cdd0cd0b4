"""Digits, splits and pictures of the embedded model."""

import numpy as np
import pytest

from harness_heads.tiny import NAME, WEIGHTS, data


def test_package_names_the_shipped_folder() -> None:
    assert NAME == "tiny-digits"
    assert WEIGHTS.name == "weights" and WEIGHTS.is_dir()


def test_splits_share_no_image_and_cover_all() -> None:
    parts = [data.indices(split) for split in data.SPLITS]
    assert [len(part) for part in parts] == [1077, 240, 240, 240]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1797))


def test_no_picture_occurs_in_two_splits() -> None:
    pictures = {split: {image.tobytes() for image in data.digits(split)[0]} for split in data.SPLITS}
    for one in data.SPLITS:
        for other in data.SPLITS:
            assert one == other or not pictures[one] & pictures[other]


@pytest.mark.parametrize("split", data.SPLITS)
def test_splits_are_stratified(split: str) -> None:
    images, labels = data.digits(split)
    counts = np.bincount(labels, minlength=10)
    assert images.shape == (len(labels), 8, 8) and images.max() == 16
    assert counts.max() - counts.min() <= 0.03 * len(labels) + 1


def test_unknown_split_is_named() -> None:
    with pytest.raises(ValueError, match=r"'test'.*train, discover, choose, evaluate"):
        data.digits("test")


def test_render_is_seeded_and_moves_by_at_most_four_pixels() -> None:
    image = np.full((8, 8), 16, np.uint8)
    first = data.render_cell(image, np.random.default_rng(3))
    assert first.size == (64, 64) and first.mode == "RGB"
    assert first.tobytes() == data.render_cell(image, np.random.default_rng(3)).tobytes()
    rng, corners = np.random.default_rng(0), set()
    for _ in range(200):
        ink = np.argwhere(np.asarray(data.render_cell(image, rng))[..., 0] > 0)
        corners.add(tuple(ink.min(0).tolist()))
        assert (ink.max(0) - ink.min(0)).tolist() == [47, 47]
    assert min(min(c) for c in corners) == 4 and max(max(c) for c in corners) == 12


def test_render_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"\(8, 8\).*\(64,\)"):
        data.render_cell(np.zeros(64, np.uint8), np.random.default_rng(0))


def test_grid_and_strip_keep_the_order_of_cells() -> None:
    cells = [data.blank((64, 64), 10 * i) for i in range(1, 7)]
    grid, strip = np.asarray(data.grid(cells[:4]))[..., 0], np.asarray(data.strip(cells))[..., 0]
    assert grid.shape == (128, 128) and strip.shape == (64, 384)
    assert [grid[0, 0], grid[0, 127], grid[127, 0], grid[127, 127]] == [10, 20, 30, 40]
    assert [strip[30, 64 * i + 5] for i in range(6)] == [10, 20, 30, 40, 50, 60]


def test_wrong_number_or_size_of_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="4 cells are needed, 3"):
        data.grid([data.blank((64, 64))] * 3)
    with pytest.raises(ValueError, match="64 x 64"):
        data.strip([data.blank((32, 64))] * 6)


@pytest.mark.parametrize("cell", range(4))
def test_mark_frames_one_cell_and_leaves_the_rest(cell: int) -> None:
    plain = data.grid([data.blank((64, 64), 0)] * 4)
    before = plain.tobytes()
    lit = np.asarray(data.mark(plain, cell))[..., 0] == 255
    top, left = cell // 2 * 64, cell % 2 * 64
    frame = np.ones((64, 64), bool)
    frame[3:-3, 3:-3] = False
    assert lit[top : top + 64, left : left + 64].tolist() == frame.tolist()
    assert lit.sum() == frame.sum() and plain.tobytes() == before


def test_mark_refuses_a_cell_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="0 to 3, not 4"):
        data.mark(data.grid([data.blank((64, 64))] * 4), 4)


def test_blank_is_uniform() -> None:
    assert set(np.asarray(data.blank((64, 64))).ravel().tolist()) == {data.BLANK_LEVEL}
