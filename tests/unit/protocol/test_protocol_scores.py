"""Array scores equal the scalar formulas of scoring.py, item by item."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import synthetic as syn

from harness_heads import scoring
from harness_heads.protocol.evidence import TaskEvidence, load_evidence
from harness_heads.protocol.scores import log_odds, probabilities, score_tables

WORLD = syn.World(items=8, controls=3)


def _options(task: TaskEvidence, arm: str, condition: str, item: int, key: str) -> dict[str, float]:
    block = task.blocks[(arm, condition)]
    return dict(zip(task.letters, block.logprobs[item, block.sets.index(key)].tolist(), strict=True))


@pytest.fixture(scope="module")
def ncs(tmp_path_factory: pytest.TempPathFactory) -> tuple[TaskEvidence, dict[str, np.ndarray], tuple[str, ...], str]:
    evidence = load_evidence([syn.write_ncs(tmp_path_factory.mktemp("ncs"), WORLD)])
    task, run = evidence.tasks[0], evidence.runs[0]
    tables = score_tables(task, run)
    return task, {t.score: t.values for t in tables}, tables[0].sets, run.sets.baseline.key


@pytest.mark.parametrize("reading", scoring.READINGS)
def test_ncs_item_by_item(
    ncs: tuple[TaskEvidence, dict[str, np.ndarray], tuple[str, ...], str], reading: scoring.Reading
) -> None:
    task, values, sets, empty = ncs
    suffix = "" if reading == "raw" else "_renorm"
    for item in range(task.n):
        letter = task.letters[int(task.correct[""][item])]
        for column, key in enumerate(sets):
            drops = [
                scoring.drop(
                    _options(task, arm, "mask:image", item, empty),
                    _options(task, arm, "mask:image", item, key),
                    letter,
                    reading,
                )
                for arm in ("matched", "mismatched")
            ]
            expected = scoring.Necessity(*drops)
            assert values[f"ncs{suffix}"][item, column] == pytest.approx(expected.ncs, abs=1e-12)
            assert values[f"drop_matched{suffix}"][item, column] == pytest.approx(drops[0], abs=1e-12)


def test_text_arm_has_its_own_right_option(
    ncs: tuple[TaskEvidence, dict[str, np.ndarray], tuple[str, ...], str],
) -> None:
    task, values, sets, empty = ncs
    for item in range(task.n):
        letter = task.letters[(int(task.correct[""][item]) + 2) % 4]
        for column, key in enumerate(sets):
            base = _options(task, "text", "mask:text", item, empty)
            expected = scoring.drop(base, _options(task, "text", "mask:text", item, key), letter)
            assert values["drop_text_text"][item, column] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(values["ncs_v2"], values["drop_matched"] - values["drop_text"])


def test_log_odds_item_by_item(ncs: tuple[TaskEvidence, dict[str, np.ndarray], tuple[str, ...], str]) -> None:
    task, values, sets, empty = ncs
    for item in range(task.n):
        letter = task.letters[int(task.correct[""][item])]
        contrast = []
        for arm in ("matched", "mismatched"):
            base = scoring.log_odds(_options(task, arm, "mask:image", item, empty), letter)
            contrast.append(base - scoring.log_odds(_options(task, arm, "mask:image", item, sets[0]), letter))
        assert values["ncs_logodds"][item, 0] == pytest.approx(contrast[0] - contrast[1], abs=1e-9)


@pytest.mark.parametrize("reading", scoring.READINGS)
def test_cers_item_by_item(tmp_path: Path, reading: scoring.Reading) -> None:
    evidence = load_evidence([syn.write_cers(tmp_path, WORLD)])
    task = evidence.tasks[0]
    values = {t.score: t for t in score_tables(task, evidence.runs[0])}
    suffix = "" if reading == "raw" else "_renorm"
    for item in range(task.n):
        c, d = task.letters[int(task.correct[""][item])], task.letters[int(task.distractor[item])]
        for column, key in enumerate(values["cers"].sets):
            to_c = _options(task, "grid", "steer:correct:beta=hard", item, key)
            to_d = _options(task, "grid", "steer:distractor:beta=hard", item, key)
            assert values[f"cers{suffix}"].values[item, column] == pytest.approx(
                scoring.contrast(to_c, to_d, c, reading), abs=1e-12
            )
            symmetric = scoring.symmetric_contrast(to_c, to_d, c, d, reading)
            assert values[f"cers_symmetric{suffix}"].values[item, column] == pytest.approx(symmetric, abs=1e-12)


def test_grid_contrast_is_hidden_other_minus_hidden_own(tmp_path: Path) -> None:
    evidence = load_evidence([syn.write_grid_ncs(tmp_path, WORLD)])
    task = evidence.tasks[0]
    table = next(t for t in score_tables(task, evidence.runs[0]) if t.score == "ncs_grid")
    assert table.primary
    for item in range(task.n):
        c = task.letters[int(task.correct[""][item])]
        hide_c = _options(task, "oracle", "mask:correct", item, table.sets[0])
        hide_d = _options(task, "oracle", "mask:distractor", item, table.sets[0])
        assert table.values[item, 0] == pytest.approx(scoring.contrast(hide_d, hide_c, c), abs=1e-12)


def test_baseline_is_no_column(ncs: tuple[TaskEvidence, dict[str, np.ndarray], tuple[str, ...], str]) -> None:
    _, _, sets, empty = ncs
    assert empty not in sets


def test_options_of_probability_zero() -> None:
    zero = np.full((1, 1, 4), -np.inf)
    assert np.isnan(probabilities(zero, "renorm")).all()
    assert (probabilities(zero, "raw") == 0).all()
    sure = np.array([[[0.0, -np.inf, -np.inf, -np.inf]]])
    assert log_odds(sure, np.array([0]))[0, 0] == math.inf


def test_equal_options_are_at_chance() -> None:
    even = np.full((1, 1, 4), -3.0)
    assert probabilities(even, "renorm") == pytest.approx(0.25)
    assert log_odds(even, np.array([2]))[0, 0] == pytest.approx(-math.log(3))


def test_rows_and_betas_make_scores_of_their_own(tmp_path: Path) -> None:
    world = syn.World(items=4, controls=2, rows=(("all",), ("image",), ("question", "last")), betas=(1.0, 3.0, "hard"))
    evidence = load_evidence([syn.write_ncs(tmp_path / "a", world), syn.write_cers(tmp_path / "b", world)])
    names = {t.condition for task in evidence.tasks for t in score_tables(task, evidence.runs[task.run]) if t.primary}
    assert names == {
        "mask:image", "mask:image:rows=image", "mask:image:rows=question+last",
        "steer:beta=1", "steer:beta=3", "steer:beta=hard",
    }  # fmt: skip
