"""The t-test against zero: as paper A prints it, beside the share of control sets that pass it too."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import synthetic as syn
from scipy import stats

from harness_heads.protocol.analysis import Analysis, analyse
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.sections.results import results_section

WORLD = syn.World(items=24, controls=5, control_sd=0.3, effects={"dg-ref-qsp": 0.4})


@pytest.fixture
def two_tasks(tmp_path: Path) -> Analysis:
    folders = [syn.write_cers(tmp_path / name, WORLD, task=name) for name in ("MMStar_pointing", "VAW_pointing")]
    return analyse(load_evidence(folders), resamples=50)


def test_it_is_the_t_test_of_the_item_scores(two_tasks: Analysis) -> None:
    for task in two_tasks.tasks:
        for effect in (e for e in task.effects if e.primary):
            table = task.table(effect.score, effect.condition)
            assert table is not None
            own = table.of([effect.key])[:, 0]
            assert effect.p_against_zero == pytest.approx(stats.ttest_1samp(own, 0).pvalue, rel=1e-6)


def test_one_item_has_no_t_test(tmp_path: Path) -> None:
    world = syn.World(items=1, controls=2)
    [task] = analyse(load_evidence([syn.write_cers(tmp_path / "a", world)]), resamples=10).tasks
    assert all(math.isnan(e.p_against_zero) for e in task.effects)


def test_every_task_shows_accuracy_gap_and_the_wrong_null_named_so(two_tasks: Analysis) -> None:
    [table] = [t for t in results_section(two_tasks).tables if t.id == "tasks"]
    assert [row[0].text for row in table.rows] == ["MMStar_pointing", "VAW_pointing"]
    cells = {name: [row[i] for row in table.rows] for i, name in enumerate(table.columns) if name != "Set"}
    assert "wrong null" in "".join(table.columns) and "wrong null" in table.note
    for test, accuracy, gap, zero, controls in zip(
        two_tasks.leading,
        cells["Baseline accuracy"],
        cells["Gap"],
        cells["p against zero (wrong null)"],
        cells["Controls significant against zero"],
        strict=True,
    ):
        levels = {level.arm: level for level in two_tasks.task_of(test).levels}
        assert accuracy.values[0] == levels["grid"].accuracy
        assert gap.values[0] == test.effect.mean - test.effect.control_mean
        assert zero.values[0] == test.effect.p_against_zero
        assert controls.values[0] == test.outside_zero > 0.2  # random sets differ from zero too
