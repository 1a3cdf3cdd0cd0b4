"""Numbers printed in the two papers, recomputed from their own printed inputs by this package's functions.

A: arXiv:2610.13111. B: arXiv:2608.27417. Where a printed number does not follow from the printed, rounded inputs, the
test says so and by how much.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import harness_heads
from harness_heads.heads import load_head_set
from harness_heads.protocol import statistics as st
from harness_heads.protocol.audits import audits
from harness_heads.protocol.effects import ArmLevel
from harness_heads.scoring import Necessity

# --- A, Table 11: setting -> P masked matched, matched drop, P masked mismatched, mismatched drop, NCS ---------------
TABLE_11 = {
    "cm-ord-last": (0.996, -0.002, 0.212, 0.005, -0.007),
    "cm-ord-out": (0.973, 0.022, 0.213, 0.005, 0.017),
    "cm-ord-qsp": (0.967, 0.028, 0.230, -0.013, 0.040),
    "cm-ref-last": (0.990, 0.004, 0.217, 0.000, 0.004),
    "cm-ref-out": (0.963, 0.032, 0.216, 0.002, 0.030),
    "cm-ref-qsp": (0.885, 0.110, 0.220, -0.003, 0.113),
}
# --- A, Table 12: set -> matched drop, mismatched drop, NCS, NCS-v2 --------------------------------------------------
TABLE_12 = {
    "discovered": (0.112, -0.013, 0.125, 0.112),
    "sinks": (0.002, -0.005, 0.007, 0.002),
    "text-heavy": (0.002, -0.003, 0.005, 0.002),
    "whole layers": (0.005, 0.006, -0.001, 0.005),
    "random 200": (0.006, -0.014, 0.020, 0.006),
    "random 400": (0.010, -0.015, 0.025, 0.010),
}


@pytest.mark.parametrize("setting", TABLE_11)
def test_ncs_is_the_difference_of_drops_in_table_11(setting: str) -> None:
    _, matched, _, mismatched, printed = TABLE_11[setting]
    ncs = Necessity(matched, mismatched).ncs
    # cm-ord-qsp: .028 + .013 = .041 is printed .040, one unit of the last digit, as rounding of the drops allows
    off = 0.001 if setting == "cm-ord-qsp" else 0.0
    assert ncs == pytest.approx(printed + off, abs=1e-9)


@pytest.mark.parametrize("name", TABLE_12)
def test_ncs_and_v2_in_table_12(name: str) -> None:
    matched, mismatched, ncs, v2 = TABLE_12[name]
    # the text-solvable arm does not move when the image is masked: its drop is .000 for every set
    found = Necessity(matched, mismatched, 0.0)
    assert (found.ncs, found.ncs_v2) == pytest.approx((ncs, v2), abs=1e-9)


def test_table_11_has_one_baseline() -> None:
    """P masked + drop is the unmasked P: the same in all rows up to rounding, and gives the headroom."""
    matched = [p + d for p, d, *_ in TABLE_11.values()]
    mismatched = [p + d for _, _, p, d, _ in TABLE_11.values()]
    assert max(matched) - min(matched) <= 0.001 + 1e-9
    assert max(mismatched) - min(mismatched) <= 0.001 + 1e-9
    headroom = np.mean(matched) - np.mean(mismatched)
    assert headroom == pytest.approx(0.7775, abs=0.001)
    assert 0.126 / headroom == pytest.approx(0.16, abs=0.005)


# --- rank p: printed text -> (rank, R) ----------------------------------------------------------------------------
PRINTED_P = {
    "A3, A9, A13, A14, A19": [
        (".43", 9, 20), (".24", 5, 20), (".33", 7, 20), ("1.0", 21, 20), (".048", 1, 20), (".38", 8, 20),
        (".095", 2, 20), (".62", 13, 20), (".86", 18, 20), (".67", 14, 20), (".29", 6, 20), (".14", 3, 20),
        (".57", 12, 20), (".76", 16, 20), ("1.00", 21, 20),
    ],
    "A10, A14": [(".004", 1, 250)],
    "A6, A16": [
        (".010", 1, 100), (".11", 11, 100), (".050", 5, 100), (".40", 40, 100), (".21", 21, 100), (".37", 37, 100),
        (".99", 100, 100), (".64", 65, 100),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("table", "text", "rank", "r"), [(k, *row) for k, rows in PRINTED_P.items() for row in rows])
def test_printed_rank_p(table: str, text: str, rank: int, r: int) -> None:
    """``rank - 1`` of R controls reach the set."""
    controls = np.where(np.arange(r) < rank - 1, 1.0, -1.0)
    digits = len(text.split(".")[1])
    assert f"{float(st.rank_p(0.0, controls)):.{digits}f}".removeprefix("0") == text


def test_one_printed_rank_p_does_not_follow() -> None:
    """Table 19 prints .91 twice: 19/21 = .9048 prints .90 and 20/21 prints .95; only rounding twice gives .91."""
    assert [f"{k / 21:.2f}" for k in (19, 20)] == ["0.90", "0.95"]
    assert pytest.approx(0.0052, abs=1e-4) == 0.91 - 19 / 21
    assert round(round(19 / 21, 3) + 1e-9, 2) == 0.91


def test_floors_that_the_captions_name() -> None:
    assert [f"{st.floor(r):.3f}" for r in (20, 100, 250)] == ["0.048", "0.010", "0.004"]


def test_holm_adjusted_p_of_the_two_winners() -> None:
    """Twelve settings; two at 1/251, the other ten no better than 1/21: both print .048 (12/251 = .0478)."""
    p = [1 / 251, 1 / 251, *[1 / 21] * 10]
    adjusted = st.holm(p)
    assert [f"{v:.3f}" for v in adjusted[:2]] == ["0.048", "0.048"]
    assert adjusted[0] == pytest.approx(12 / 251)
    # the coincidence that both .048 invite: the raw floor of 20 controls is 1/21 = .0476, another number
    assert abs(12 / 251 - 1 / 21) > 1e-4
    assert (adjusted[2:] > 0.05).all()


def test_with_twenty_controls_no_setting_of_twelve_can_survive() -> None:
    assert st.holm([1 / 21] * 12)[0] == pytest.approx(12 / 21)


def test_difference_between_query_span_and_last_token_sets() -> None:
    """.083 = mean of the four qsp sets - mean of the four last sets (A, Tables 3, 5, 10)."""
    qsp, last = [0.043, 0.036, 0.116, 0.126], [-0.009, 0.002, -0.002, -0.002]
    difference = float(st.group_difference(np.array([qsp]), np.array([last]))[0])
    assert f"{difference:.3f}" == "0.083"
    # p = 6e-10 read as two-sided paired t over 400 items fixes the standard error and the item SD
    t = st.t_from_p(6e-10, 399)
    assert t == pytest.approx(6.35, abs=0.02)
    se = difference / t
    assert se == pytest.approx(0.0131, abs=1e-4)
    items = np.random.default_rng(0).normal(size=400)
    items = difference + (items - items.mean()) / items.std(ddof=1) * se * 20
    found = st.paired_t(items)
    assert f"{found.p:.0e}" == "6e-10"
    assert (found.low, found.high) == pytest.approx((0.057, 0.109), abs=5e-4)
    # a sign-flip test cannot have produced it, and over head sets the floor is 1/70
    assert st.sign_flip(items, np.random.default_rng(1), 10_000).floor > 6e-10
    assert st.set_level_floor(4, 4) == pytest.approx(0.014, abs=5e-4)


def test_seventeen_to_nineteen_standard_deviations() -> None:
    """Printed SD .007 gives 16.3 and 18.1; .0067, which also prints .007, gives the 17 and 19 of the abstract."""
    for sd, expected in ((0.007, ("16.3", "18.1")), (0.0067, ("17.0", "19.0"))):
        assert tuple(f"{(s - m) / sd:.1f}" for s, m in ((0.116, 0.002), (0.126, -0.001))) == expected
    assert f"{0.0067:.3f}" == "0.007"


def test_spread_behind_the_intervals_of_the_mean() -> None:
    """A, Table 3 prints intervals of the controls' mean; the SD of one control set behind them is 4.5 times wider."""
    bounds = {
        "cm-ord-last": (-0.147, 0.069),
        "cm-ord-out": (-0.170, 0.011),
        "cm-ord-qsp": (-0.023, 0.146),
        "cm-ref-last": (0.186, 0.420),
    }
    half = {k: (b - a) / 2 for k, (a, b) in bounds.items()}
    sd = {k: v * math.sqrt(20) / stats.t.ppf(0.975, 19) for k, v in half.items()}
    assert min(sd.values()) == pytest.approx(0.18, abs=0.005)
    assert max(sd.values()) == pytest.approx(0.25, abs=0.005)
    # a set with that spread must pass its controls by about .4 to be seen: "not specific" is a low-power null
    assert st.detectable_by_rank(20, 0.18, 0.0).effect > 0.4


def test_crawford_howell_from_printed_summaries() -> None:
    """cm-ord-qsp, NCS: .043 against -.004 [-.006, -.001], R = 20."""
    sd = 0.0025 * math.sqrt(20) / stats.t.ppf(0.975, 19)
    draws = np.random.default_rng(2).normal(size=20)
    draws = -0.0035 + (draws - draws.mean()) / draws.std(ddof=1) * sd
    found = st.control_spread(0.043, draws)
    assert float(found.t) == pytest.approx(8.5, abs=0.2)
    assert 1e-8 < float(found.p) < 1e-7


TABLE_20 = [
    (81.2, 98.4, "0.82"),
    (90.5, 99.2, "0.91"),
    (83.8, 96.6, "0.87"),
    (78.5, 97.7, "0.80"),
    (83.8, 97.8, "0.86"),
    (35.2, 97.2, "0.36"),
]


@pytest.mark.parametrize(("shared", "ceiling", "printed"), TABLE_20)
def test_fractions_of_the_ceiling(shared: float, ceiling: float, printed: str) -> None:
    fraction = st.ceiling_fraction(shared, ceiling, ceiling).fraction
    if (shared, ceiling) == (81.2, 98.4):
        # .8252 would print .83; unrounded inputs between 81.15/98.45 = .8243 and .8250 give the printed .82
        assert f"{fraction:.2f}" == "0.83"
        assert fraction - float(printed) == pytest.approx(0.0052, abs=1e-4)
        assert f"{st.ceiling_fraction(81.15, 98.45, 98.45).fraction:.2f}" == printed
    else:
        assert f"{fraction:.2f}" == printed


def test_median_corpus_overlap_of_the_printed_rows() -> None:
    assert f"{np.median([row[0] for row in TABLE_20[:5]]):.0f}" == "84"


def test_chance_overlap_behind_figure_7() -> None:
    """A random 100 shares up to 76 and 78 heads with a set: only a model of about 128 heads does that."""
    assert st.uniform_chance(100, 100, 128).mean == pytest.approx(78.1, abs=0.05)
    assert st.uniform_chance(100, 100, 336).mean == pytest.approx(29.8, abs=0.05)


def test_only_one_printed_correlation_of_table_17_passes_alone() -> None:
    rho = [-0.39, -0.54, -0.22, -0.20, -0.14, -0.04, 0.12, -0.01, 0.28, 0.17, -0.15, 0.02, -0.19]
    rho += [-0.10, -0.29, 0.39, 0.11, 0.26, 0.37, 0.40, -0.37, -0.40, -0.21, 0.01, -0.12]
    t = [abs(r) * math.sqrt(18 / (1 - r * r)) for r in rho]
    found = st.uncorrected_count([2 * stats.t.sf(v, 18) for v in t])
    assert (found.tests, found.passing, found.passing_bonferroni) == (25, 1, 0)
    assert sum(abs(r) > st.critical_rho(20) for r in rho) == 1


def test_headroom_and_audit_of_table_22() -> None:
    """dataset -> oracle, floor, matched, mismatched; the paper's bold cells are all out of this package's range too."""
    table = {
        "MathVista": (0.885, 0.275, 0.870, 0.730),
        "CountBenchQA": (0.950, 0.302, 0.897, 0.220),
        "CVBench": (0.632, 0.268, 0.740, 0.605),
        "MMStar": (0.815, 0.273, 0.935, 0.367),
        "SpatialRGPT": (0.282, 0.230, 0.492, 0.470),
        "Spatial457": (0.573, 0.217, 0.735, 0.527),
    }
    bold = {("MathVista", "mismatched"), ("CVBench", "oracle"), ("CVBench", "mismatched"), ("SpatialRGPT", "oracle")}
    bold |= {("SpatialRGPT", "mismatched"), ("Spatial457", "oracle"), ("Spatial457", "mismatched")}
    failed = set()
    for name, row in table.items():
        levels = tuple(
            ArmLevel(arm, p, p, p, 1.0, (0.25,) * 4)
            for arm, p in zip(("oracle", "blank", "matched", "mismatched"), row, strict=True)
        )
        failed |= {(name, x.arm) for x in audits(name, levels) if not x.passed}
    assert bold <= failed
    headroom = {name: row[2] - row[3] for name, row in table.items()}
    assert headroom == pytest.approx(
        {
            "MathVista": 0.14,
            "CountBenchQA": 0.677,
            "CVBench": 0.135,
            "MMStar": 0.568,
            "SpatialRGPT": 0.022,
            "Spatial457": 0.208,
        }
    )


def test_ranges_of_table_8_are_those_of_table_24() -> None:
    columns = {
        "Qwen3-VL-4B": (
            [0.098, 0.070, 0.154, 0.090, -0.015],
            [-0.022, -0.041, -0.021, -0.041, -0.020],
            (-0.015, 0.154, -0.041, -0.020),
        ),
        "Qwen3.5-9B": (
            [-0.003, -0.017, -0.017, -0.034, -0.024],
            [-0.038, -0.041, 0.040, 0.028, 0.018],
            (-0.034, -0.003, -0.041, 0.040),
        ),
        "Gemma-4-E4B": (
            [0.001, -0.005, 0.000, 0.007, -0.002],
            [0.035, 0.004, 0.038, -0.026, -0.020],
            (-0.005, 0.007, -0.026, 0.038),
        ),
        "Ovis1.5": (
            [0.011, 0.013, 0.005, 0.014, 0.001],
            [-0.026, -0.003, -0.035, -0.014, -0.001],
            (0.001, 0.014, -0.035, -0.001),
        ),
    }
    for sets, draws, printed in columns.values():
        assert (min(sets), max(sets), min(draws), max(draws)) == printed


def test_gaps_of_table_26() -> None:
    """The caption says unrounded; from rounded columns two of six gaps are one unit off."""
    rows = [
        (0.427, 0.459, -0.033),
        (0.012, 0.028, -0.016),
        (0.017, 0.004, 0.012),
        (0.069, 0.069, 0.0),
        (0.019, 0.013, 0.006),
        (0.197, 0.186, 0.011),
    ]
    off = [round((s - r) - gap, 3) for s, r, gap in rows]
    assert off == [0.001, 0.0, 0.001, 0.0, 0.0, 0.0]


# --- B ------------------------------------------------------------------------------------------------------------
def test_sparsity() -> None:
    assert f"{100 * 20 / 784:.1f}" == "2.6"
    assert f"{100 * 20 / 1152:.1f}" == "1.7"
    assert f"{100 * 100 / 1152:.1f}" == "8.7"  # k of paper A


TABLE_B3 = {
    "Qwen2.5-VL-7B": (
        [63.8, 68.2, 36.1, 75.1, 58.3, 83.9, 71.5],
        [63.7, 67.2, 39.5, 71.9, 56.8, 84.1, 72.0],
        [-0.1, -1.0, 3.4, -3.2, -1.5, 0.2, 0.5],
        [40.5, 36.0, 21.8, 53.3, 47.9, 61.5, 61.7],
        [-23.3, -32.2, -14.3, -21.8, -10.4, -22.4, -9.8],
    ),
    "Qwen3-VL-8B": (
        [74.8, 78.2, 50.8, 87.6, 63.0, 88.4, 66.5],
        [74.3, 76.4, 46.2, 87.1, 63.3, 89.6, 69.4],
        [-0.5, -1.8, -4.6, -0.5, 0.3, 1.2, 2.9],
        [51.0, 36.9, 22.9, 68.7, 47.7, 74.5, 43.0],
        [-23.8, -41.3, -27.9, -18.9, -15.3, -13.9, -23.5],
    ),
}


@pytest.mark.parametrize("model", TABLE_B3)
def test_drops_of_table_3(model: str) -> None:
    base, random, random_printed, masked, masked_printed = (np.array(v) for v in TABLE_B3[model])
    assert np.round(random - base, 1) == pytest.approx(random_printed)
    assert np.round(masked - base, 1) == pytest.approx(masked_printed)


def test_largest_drop_is_above_the_abstracts_eighty_points() -> None:
    """InternVL3-8B, Tables A8 and A9: 93.59 to 8.76 is 84.83 points, "up to 80" in the abstract."""
    assert round(93.59 - 8.76, 2) == 84.83


def test_where_the_chosen_score_ranks_first_or_second() -> None:
    """Table A9 (a): rows VRH, then the three flipped variants; at k = 5 it is the weakest of the four."""
    rows = {
        5: (79.29, 56.08, 63.28, 63.14),
        10: (9.63, 10.52, 8.87, 9.63),
        20: (7.48, 7.68, 8.13, 8.01),
        50: (6.63, 9.85, 7.21, 8.70),
    }
    places = {k: 1 + sum(v < row[0] for v in row[1:]) for k, row in rows.items()}
    assert places == {5: 4, 10: 2, 20: 1, 50: 1}


def test_counts_that_the_captions_name() -> None:
    """A, Tables 22, 23 and 27: 8 data sets of 160 items, 14 tasks of 80; B, Table A10: detection samples taken off."""
    assert (8 * 160, 14 * 80, 8811 - 200) == (1280, 1120, 8611)


def test_parts_of_table_15_are_parts_of_a_hundred() -> None:
    for shared, own in ((91, 9), (80, 20), (79, 21), (35, 65), (71, 29), (51, 49)):
        first, second = range(100), range(own, 100 + own)
        parts = st.decompose([(0, h) for h in first], [(0, h) for h in second])  # type: ignore[list-item]
        assert tuple(map(len, parts)) == (shared, own, own)


def test_accuracies_over_five_hundred_samples() -> None:
    """B, Tables A12 and A13: with 500 samples every accuracy is a multiple of .2; Table A13 repeats A12's columns."""
    rows = [
        [68.8, 85.8, 73.6, 93.0, 90.0, 86.4, 74.2],
        [64.0, 77.8, 73.2, 91.6, 86.8, 85.8, 73.8],
        [7.8, 5.0, 11.6, 21.4, 11.4, 10.0, 18.0],
    ]
    assert all(abs(v * 5 - round(v * 5)) < 1e-9 for row in rows for v in row)
    assert [row[:2] for row in rows] == [[68.8, 85.8], [64.0, 77.8], [7.8, 5.0]]


def test_accuracies_of_table_a10_are_counts() -> None:
    """7.46 % of 8,811 and 7.48 % of 8,611: each is a whole number of samples to the printed digit."""
    for printed, n in ((7.46, 8811), (20.44, 8811), (8.76, 8811), (32.14, 8811), (7.48, 8611), (20.39, 8611)):
        assert f"{100 * round(printed * n / 100) / n:.2f}" == f"{printed:.2f}"


FOLDER = Path(harness_heads.__file__).parent / "head_sets"
BENCHMARKS = ("refcoco", "refcoco-plus", "refcocog", "toloka", "refspatial")
PAIRS = {
    ("qwen3-vl-8b", "internvl3.5-8b"): ([18, 18, 16, 15, 15], 0.35, (2.0, 2.4)),
    ("qwen2.5-vl-7b", "internvl3-8b"): ([15, 16, 14, 16, 16], 0.51, (3.4, 4.3)),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_overlap_of_published_lists(pair: tuple[str, str]) -> None:
    """Same language backbone, other vision encoder: Tables A2 to A6, far above chance even at equal layer profiles."""
    printed, uniform, layered = PAIRS[pair]
    sets = [[load_head_set(FOLDER / f"vrh__{model}__{name}.json") for model in pair] for name in BENCHMARKS]
    assert [len(st.decompose(a, b).shared) for a, b in sets] == printed
    for a, b in sets:
        assert st.uniform_chance(20, 20, a.geometry.total).mean == pytest.approx(uniform, abs=0.005)
        assert layered[0] <= st.layer_chance(a.per_layer, b.per_layer, a.geometry.heads).mean <= layered[1]


def test_published_lists_agree_over_benchmarks() -> None:
    for model in ("qwen2.5-vl-7b", "qwen3-vl-8b", "internvl3-8b", "internvl3.5-8b"):
        sets = [set(load_head_set(FOLDER / f"vrh__{model}__{name}.json").heads) for name in BENCHMARKS]
        shared = [len(a & b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
        assert 14 <= min(shared) <= max(shared) <= 20
