"""The unified score, its aggregations, rankings and the two criteria of localization heads, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness_heads.discovery.capture import Got
from harness_heads.discovery.entropy import elbow, localization_hits, spatial_entropy
from harness_heads.discovery.measure import MEASURES, Plan, measure, measure_calibrated, plan_rows
from harness_heads.discovery.score import (
    Measured,
    default_k,
    half_mass_share,
    omega_freq,
    omega_mean,
    rank,
    top_heads,
    top_per_layer,
)
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef
from harness_heads.layouts import ImageTokens, PromptLayout, grid_cells, no_cells
from harness_heads.regions import Region

HYBRID = Geometry((3, 0, 2))


def scores(*rows: list[float]) -> np.ndarray:
    """A matrix for HYBRID: NaN where a head is absent."""
    out = np.full((3, 3), np.nan)
    for layer, row in zip((0, 2), rows, strict=True):
        out[layer, : len(row)] = row
    return out


def layout() -> PromptLayout:
    """3 prefix tokens, a 2 x 6 image, 5 question tokens, 2 tail tokens: 22 tokens."""
    image = ImageTokens(torch.arange(3, 15), grid_cells(2, 6), (120, 40))
    return PromptLayout(22, (image,), (1, 20))


def plan(sources: tuple[str, ...], out_row: str = "consume", answer: int = 3, box: tuple[int, ...] = (0, 1, 2)) -> Plan:
    return plan_rows(
        layout(),
        torch.tensor([16, 17]),
        answer,
        box,
        sources,
        Region(((0.0, 0.0, 40.0, 40.0),)),
        out_row=out_row,
        rule="centre",
        rng=np.random.default_rng(0),
    )


def rows_of(made: Plan, source: str) -> list[int]:
    return made.want.rows[made.sources[source]].tolist()


def test_rows_of_every_source() -> None:
    made = plan(("last", "qsp", "in", "turn", "out", "both", "first", "one"))
    assert rows_of(made, "last") == [21]
    assert rows_of(made, "qsp") == [16, 17]
    assert rows_of(made, "in") == [15, 16, 17, 18, 19]
    assert rows_of(made, "turn") == [15, 16, 17, 18, 19, 20, 21]
    assert rows_of(made, "out") == [22, 23, 24]
    assert rows_of(made, "both") == [15, 16, 17, 18, 19, 22, 23, 24]
    assert rows_of(made, "first") == [22]
    assert rows_of(made, "one")[0] in (22, 23, 24)
    assert made.target.tolist() == [3, 4, 9, 10]
    assert made.want.rows.tolist() == sorted(set(made.want.rows.tolist()))


def test_predicting_rows_begin_at_the_last_prompt_row() -> None:
    made = plan(("last", "out", "first"), out_row="predict")
    assert rows_of(made, "out") == [21, 22, 23]
    assert rows_of(made, "first") == rows_of(made, "last")


def test_box_tokens_alone_count_as_output() -> None:
    assert rows_of(plan(("out",), answer=6, box=(2, 4)), "out") == [24, 26]


def test_a_source_without_rows_and_a_region_without_tokens_are_named() -> None:
    with pytest.raises(HarnessHeadsError, match="no output tokens"):
        plan(("out",), answer=0, box=())
    with pytest.raises(HarnessHeadsError, match=r"region .*outside the 120x40 image"):
        plan_rows(
            layout(),
            torch.tensor([16]),
            0,
            (),
            ("qsp",),
            Region(((200.0, 0.0, 240.0, 40.0),)),
            out_row="consume",
            rule="centre",
            rng=np.random.default_rng(0),
            name="panel 3",
        )


def test_a_region_that_selects_no_token_is_named() -> None:
    """All tokens of the image are newlines, which cover nothing of it."""
    bare = ImageTokens(torch.arange(3, 15), no_cells(12), (120, 40))
    with pytest.raises(HarnessHeadsError, match="region 'panel 3': no image token lies in it"):
        plan_rows(
            PromptLayout(22, (bare,), (1, 20)),
            torch.tensor([16]),
            0,
            (),
            ("qsp",),
            Region(((0.0, 0.0, 40.0, 40.0),)),
            out_row="consume",
            rule="centre",
            rng=np.random.default_rng(0),
            name="panel 3",
        )


def test_a_layer_without_softmax_heads_cannot_be_named() -> None:
    with pytest.raises(HarnessHeadsError, match="layer 1 has no softmax attention heads"):
        HeadSet("s", ModelRef("hybrid"), HYBRID, (Head(1, 0),))
    assert {h.layer for h in top_heads(scores([1, 2, 3], [4, 5]), HYBRID, 5)} == {0, 2}


def test_measures_are_means_over_the_sources_rows() -> None:
    made = plan(("last", "qsp"))
    rng = np.random.default_rng(1)
    attention = rng.dirichlet(np.ones(22), size=(2, 2, 3))  # layers, heads, rows 16, 17, 21
    sums = {
        name: torch.tensor(attention[..., keys].sum(-1))
        for name, keys in (("target", [3, 4, 9, 10]), ("image", list(range(3, 15))), ("sink", [0]))
    }
    strongest = torch.tensor(attention.argmax(-1))
    strongest_image = torch.tensor(attention[..., 3:15].argmax(-1) + 3)
    got = Got(sums, strongest, strongest_image, {})
    values = measure(made, got, ("last", "qsp"))
    assert values.shape == (2, len(MEASURES), 2, 2)
    own = {name: values[1, i] for i, name in enumerate(MEASURES)}
    target = attention[..., [3, 4, 9, 10]].sum(-1)
    np.testing.assert_allclose(own["sum"], target[..., :2].mean(-1))
    np.testing.assert_allclose(own["mean"], target[..., :2].mean(-1) / 4)
    np.testing.assert_allclose(own["sink"], attention[..., :2, 0].mean(-1))
    image = attention[..., 3:15].sum(-1)
    np.testing.assert_allclose(own["share"], (target / (image + 1e-9))[..., :2].mean(-1))
    hit = np.isin(attention.argmax(-1), [3, 4, 9, 10])
    np.testing.assert_allclose(own["argmax"], hit[..., :2].mean(-1))
    np.testing.assert_allclose(values[0, 0], target[..., 2])


def test_absent_heads_are_no_zeros() -> None:
    made = plan(("last",))
    sums = {name: torch.full((2, 2, 1), torch.nan) for name in ("target", "image", "sink")}
    for value in sums.values():
        value[0] = 0.25
    got = Got(sums, torch.full((2, 2, 1), 3), torch.full((2, 2, 1), 3), {})
    values = measure(made, got, ("last",))
    assert not np.isnan(values[:, :, 0]).any()
    assert np.isnan(values[:, :, 1]).all()


def test_calibration_subtracts_the_null_query_and_drops_weak_tokens() -> None:
    made = plan(("in",))
    image = torch.arange(3, 15)
    map_query, map_null = torch.zeros(1, 1, 12), torch.zeros(1, 1, 12)
    map_query[0, 0, [0, 1, 6, 7]] = torch.tensor([0.4, 0.3, 0.2, 0.1])  # tokens 3, 4, 9, 10: the region
    map_query[0, 0, 2] = 0.9  # outside of it
    map_null[0, 0, [0, 1, 6, 7]] = 0.05
    got, null = (Got({}, torch.zeros(0), torch.zeros(0), {"in": m}) for m in (map_query, map_null))
    assert measure_calibrated(made, got, null, "in", image)[0, 0] == pytest.approx(0.8)
    wide = Plan(made.want, made.sources, image)
    spread = torch.full((1, 1, 12), 0.1)
    spread[0, 0, 11] = -5.0  # far below mean - 2 SD
    got, null = (Got({}, torch.zeros(0), torch.zeros(0), {"in": m}) for m in (spread, torch.zeros(1, 1, 12)))
    assert measure_calibrated(wide, got, null, "in", image)[0, 0] == pytest.approx(1.1)


def test_mean_and_frequency() -> None:
    per_sample = np.stack([scores([0.5, 0.1, 0.2], [0.3, 0.0]), scores([0.1, 0.1, 0.2], [0.3, 0.0])])
    np.testing.assert_allclose(omega_mean(per_sample), scores([0.3, 0.1, 0.2], [0.3, 0.0]))
    np.testing.assert_allclose(omega_freq(per_sample, 2), scores([0.5, 0.0, 0.5], [1.0, 0.0]))
    np.testing.assert_allclose(omega_freq(per_sample, 5), scores([1, 1, 1], [1, 1]))


@pytest.mark.parametrize("top", [0, 6])
def test_frequency_needs_a_k_that_fits(top: int) -> None:
    with pytest.raises(HarnessHeadsError, match=f"top {top} of 5 heads"):
        omega_freq(np.stack([scores([1, 2, 3], [4, 5])]), top)


@pytest.mark.parametrize("bad", [np.zeros((0, 3, 3)), np.zeros((3, 3))])
def test_scores_of_the_wrong_shape(bad: np.ndarray) -> None:
    with pytest.raises(HarnessHeadsError, match="with a sample is needed"):
        omega_mean(bad)


def test_scores_that_are_not_finite_are_an_error() -> None:
    broken = np.stack([scores([1, 2, 3], [4, 5]), scores([1, 2, math.nan], [4, 5])])
    with pytest.raises(HarnessHeadsError, match="not finite"):
        omega_mean(broken)


def test_ranking_breaks_ties_by_layer_and_head_and_skips_absent_heads() -> None:
    values = scores([0.1, 0.7, 0.7], [0.7, 0.1])
    assert rank(values, HYBRID) == [Head(0, 1), Head(0, 2), Head(2, 0), Head(0, 0), Head(2, 1)]
    assert top_heads(values, HYBRID, 2) == (Head(0, 1), Head(0, 2))
    assert top_per_layer(values, HYBRID, 1) == (Head(0, 1), Head(2, 0))


@pytest.mark.parametrize("k", [0, 6])
def test_k_counts_softmax_heads(k: int) -> None:
    with pytest.raises(HarnessHeadsError, match=f"k={k}: the model has 5 softmax"):
        top_heads(scores([1, 2, 3], [4, 5]), HYBRID, k)


def test_k_per_layer_fits_the_smallest_layer() -> None:
    with pytest.raises(HarnessHeadsError, match="smallest layer has 2 heads"):
        top_per_layer(scores([1, 2, 3], [4, 5]), HYBRID, 3)


def test_ranking_refuses_another_geometry_and_missing_scores() -> None:
    with pytest.raises(HarnessHeadsError, match="do not fit 3 layers"):
        rank(np.zeros((2, 3)), HYBRID)
    with pytest.raises(HarnessHeadsError, match=r"L2\.1 has no score"):
        rank(scores([1, 2, 3], [4]), HYBRID)


@pytest.mark.parametrize(("geometry", "k"), [((16,) * 6, 8), ((32,) * 36, 100), ((28,) * 28, 70), ((4,), 1)])
def test_default_size_is_at_most_nine_percent_and_a_hundred(geometry: tuple[int, ...], k: int) -> None:
    assert default_k(Geometry(geometry)) == k


def test_half_of_the_positive_mass() -> None:
    assert half_mass_share(np.array([[4.0, 2.0, 1.0, 1.0]])) == pytest.approx(1 / 4)
    assert half_mass_share(np.array([[3.0, 3.0, 1.0, -9.0]])) == pytest.approx(2 / 4)
    assert math.isnan(half_mass_share(np.array([[-1.0, 0.0]])))


def test_what_was_not_measured_is_named() -> None:
    measured = Measured(np.zeros((1, 1, 1, 1, 1), dtype=np.float32), ("last",), ("sum",))
    with pytest.raises(HarnessHeadsError, match="source 'out' was not measured"):
        measured.of("out", "sum")
    with pytest.raises(HarnessHeadsError, match="measure 'share' was not measured"):
        measured.of("last", "share")


def test_one_blob_has_no_entropy_and_equal_blobs_have_the_logarithm() -> None:
    grid = np.zeros((6, 9))
    grid[1:3, 1:3] = 0.1
    assert spatial_entropy(grid) == 0.0
    grid[4:6, 6:8] = 0.1
    assert spatial_entropy(grid) == pytest.approx(math.log(2))
    grid[3, 3] = 0.1  # touches the first blob by a corner only: 8-connected
    assert spatial_entropy(grid) < math.log(2)
    assert spatial_entropy(np.full((3, 3), 0.1)) == math.inf


@given(st.lists(st.floats(0, 1), min_size=3, max_size=40))
def test_elbow_is_one_of_the_values(values: list[float]) -> None:
    assert elbow(np.array(values)) in values


def test_elbow_of_a_bent_curve() -> None:
    assert elbow(np.array([0.0, 0.01, 0.02, 0.03, 0.5, 1.0])) == 0.03


def test_localization_takes_compact_heads_among_those_with_mass() -> None:
    mass = np.array([[0.9, 0.8, 0.01, 0.7], [0.02, 0.03, 0.01, 0.02]])
    entropy = np.array([[1.0, 0.2, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    hits = localization_hits(mass, entropy, 2)
    assert np.argwhere(hits == 1).tolist() == [[0, 1], [0, 3]]
    absent = mass.copy()
    absent[1] = np.nan
    assert np.isnan(localization_hits(absent, entropy, 2)[1]).all()
