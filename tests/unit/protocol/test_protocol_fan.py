"""Stock tasks under a set and each control: read as one task, whole or refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import synthetic as syn

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import empty_set
from harness_heads.protocol.analysis import analyse
from harness_heads.protocol.evidence import evidence_from_dict, load_evidence
from harness_heads.protocol.report import render

WORLD = syn.World(items=8, controls=4, effects={"a": 0.3})


def write_fan(root: Path, scores: dict[str, Sequence[float]], payload: bool = False) -> list[Path]:
    """One folder a label, as ``harness-heads run`` leaves them; an empty list writes no samples."""
    parent = syn.discovered(WORLD)[0]
    sets = {"set": parent, "untouched": empty_set(parent.model, parent.geometry)}
    controls = [e.heads for e in syn.table(WORLD) if e.role == "control"]
    sets |= {f"layer-{i}": heads for i, heads in enumerate(controls)}
    out = []
    for label, values in scores.items():
        folder = root / "stock" / "key" / label
        sets[label].save(folder / "head_set.json")
        lines = []
        for i, value in enumerate(values):
            score = {"mmstar": {"question_id": i, "score": value}} if payload else {"exact_match": value}
            lines.append(json.dumps({"doc_id": i, "target": "A", "resps": [["B"]], "doc_hash": "x", **score}))
        if lines:
            (folder / "m").mkdir()
            (folder / "m" / "20261201_samples_mmstar.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        out.append(folder)
    return out


GOOD = {"set": [0, 0, 1, 0], "layer-0": [1, 1, 1, 0], "layer-1": [1, 1, 1, 1], "layer-2": [1, 0, 1, 1]}


@pytest.mark.parametrize("payload", [False, True])
def test_loss_of_the_set_against_each_control(tmp_path: Path, payload: bool) -> None:
    evidence = load_evidence(write_fan(tmp_path, GOOD, payload))
    (test,) = analyse(evidence, 40).tests
    assert test.effect.score == "stock_loss"
    assert test.effect.mean == pytest.approx(0.75)
    assert test.effect.controls == pytest.approx((0.25, 0.0, 0.25))
    assert test.effect.p_upper == pytest.approx(1 / 4)
    assert evidence.exploratory
    assert evidence_from_dict(evidence.to_dict()).digest == evidence.digest


def test_drop_against_the_untouched_host(tmp_path: Path) -> None:
    """With the host's own run beside it, a set costs what it takes from that, not from a perfect score."""
    analysis = analyse(load_evidence(write_fan(tmp_path, GOOD | {"untouched": [1, 0, 1, 1]})), 40)
    (test,) = analysis.tests
    assert test.effect.score == "stock_drop"
    assert test.effect.mean == pytest.approx(0.5)
    assert test.effect.controls == pytest.approx((0.0, -0.25, 0.0))
    assert test.effect.p_upper == pytest.approx(1 / 4)
    _, markdown, _ = render(analysis)
    wide = " ".join(markdown[markdown.index("Accuracy under ablation") :].split())
    for cell in ("baseline | 75.0", "83.3 (+8.3)", "25.0 (-50.0)"):
        assert cell in wide


def test_a_fan_makes_a_report(tmp_path: Path) -> None:
    _, markdown, _ = render(analyse(load_evidence(write_fan(tmp_path, GOOD)), 40))
    assert "1 - task score 0.750" in markdown


@pytest.mark.parametrize(
    ("scores", "match"),
    [
        (GOOD | {"layer-2": []}, "run under layer-2 has no samples"),
        ({k: v for k, v in GOOD.items() if k != "set"}, "the run under the set itself is missing"),
        (GOOD | {"untouched": []}, "run under untouched has no samples"),
        (GOOD | {"layer-1": [1, 1, 1]}, "other items"),
        (GOOD | {"layer-1": [1, 1, 1, 7]}, r"no score in \[0, 1\]"),
    ],
)
def test_an_incomplete_fan_is_refused(tmp_path: Path, scores: dict[str, Sequence[float]], match: str) -> None:
    with pytest.raises(HarnessHeadsError, match=match):
        load_evidence(write_fan(tmp_path, scores))


def test_a_folder_left_out_is_found(tmp_path: Path) -> None:
    folders = write_fan(tmp_path, GOOD)
    with pytest.raises(HarnessHeadsError, match="run under layer-1 has no samples"):
        load_evidence([f for f in folders if f.name != "layer-1"])
