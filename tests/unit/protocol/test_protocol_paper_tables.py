"""Tables of the papers found in the report in their own shape, each on synthetic evidence that holds it.

A: arXiv:2610.13111. B: arXiv:2608.27417. Numbers are checked elsewhere; here stand headings, rows and one value each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn

from harness_heads.conditions import Condition
from harness_heads.heads import HeadSet, ModelRef
from harness_heads.probes import ProbeResult
from harness_heads.protocol.analysis import Analysis, analyse
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.sections import sections
from harness_heads.protocol.tables import Table

WORLD = syn.World(items=12, controls=5, effects={"cm-ref-qsp": 0.4, "cm-ord-last": 0.0}, control_mass=0.19)


def analysed(*folders: Path) -> Analysis:
    return analyse(load_evidence(folders), 40)


def table(a: Analysis, id: str, number: str) -> Table:
    """The table of this id, which must say whose shape it has."""
    found = next(t for s in sections(a) for t in s.tables if t.id == id)
    said = found.paper.replace(",", " ").split()
    assert number in said, found.paper
    return found


def body(found: Table) -> dict[str, list[str]]:
    return {row[0].text: [c.text for c in row[1:]] for row in found.rows}


def strong(found: Table, row: str, column: str) -> bool:
    return next(r for r in found.rows if r[0].text == row)[found.columns.index(column)].strong


def test_a3_both_scores_of_every_set(tmp_path: Path) -> None:
    world = replace(WORLD, families=("layer", "any"))
    a = analysed(syn.write_ncs(tmp_path / "n", world), syn.write_cers(tmp_path / "c", world))
    found = table(a, "overview", "3")
    assert found.columns == (
        "Setting", "CERS [95 % CI]", "Controls ± SD", "p", "Any layer ± SD", "NCS [95 % CI]", "Controls ± SD", "p",
    )  # fmt: skip
    assert set(body(found)) == {"tiny-digits/cm-ord-last", "tiny-digits/cm-ref-qsp"}
    assert all("±" in row[3] for row in body(found).values())


def test_a5_and_a13_masked_rows(tmp_path: Path) -> None:
    world = replace(WORLD, rows=(("all",), ("question",), ("last",)))
    a = analysed(syn.write_ncs(tmp_path / "n", world), syn.write_cers(tmp_path / "c", world))
    found = table(a, "wide-rows-0", "5")
    assert found.columns == ("Setting", "all rows", "last rows", "question rows", "CERS / controls (p)")
    assert set(body(found)) == {"cm-ref-qsp", "cm-ord-last"}
    assert strong(found, "cm-ref-qsp", "all rows")
    assert body(found)["cm-ref-qsp"][3].endswith("(0.167)")
    long = table(a, "rows-table-0", "13")
    assert long.columns[:3] == ("Masked rows", "Set [95 % CI]", "Controls ± SD") and "Rank p" in long.columns
    assert [r[0].text for r in long.rows] == ["all rows", "last rows", "question rows"]


def test_a6_and_a16_contrasts_on_the_grid(tmp_path: Path) -> None:
    world = replace(WORLD, effects={"cm-ref-qsp": 0.4, "co-ref-qsp": 0.3, "cm-ord-last": 0.0})
    a = analysed(syn.write_grid_ncs(tmp_path / "g", world), syn.write_cers(tmp_path / "c", world))
    found = table(a, "wide-corpus-0", "6")
    assert found.columns == ("Query and source", "cm: NCS [95 % CI]", "cm: p", "co: NCS [95 % CI]", "co: p")
    assert body(found)["ord-last"][2:] == ["-", "-"]
    assert body(found)["ref-qsp"][1] == "0.167" == body(found)["ref-qsp"][3]
    both = table(a, "wide-contrasts", "16")
    assert both.columns == (
        "Setting", "NCS on the grid [95 % CI]", "NCS on the grid, controls ± SD", "NCS on the grid, p",
        "symmetric CERS [95 % CI]", "symmetric CERS, controls ± SD", "symmetric CERS, p",
    )  # fmt: skip
    assert len(both.rows) == 3 and all(len(c.text) > 1 for row in both.rows for c in row)


def test_a9_rank_p_by_family(tmp_path: Path) -> None:
    world = replace(WORLD, families=("layer", "attention"))
    a = analysed(syn.write_ncs(tmp_path / "n", world), syn.write_cers(tmp_path / "c", world))
    found = table(a, "wide-families", "9")
    assert found.columns == ("Setting", "CERS, layer", "CERS, attention", "NCS, layer", "NCS, attention")
    assert body(found)["cm-ref-qsp"] == ["0.167"] * 4


def test_a10_mean_and_sd_of_controls(tmp_path: Path) -> None:
    found = table(analysed(syn.write_ncs(tmp_path, WORLD)), "main-ncs", "10")
    assert found.columns[2:5] == ("NCS [95 % CI]", "Controls, mean ± SD", "Rank p")


def test_a11_arms_of_ncs(tmp_path: Path) -> None:
    found = table(analysed(syn.write_ncs(tmp_path, WORLD)), "split", "11")
    assert found.columns[3:8] == (
        "P masked, matched", "Matched drop", "P masked, mismatched", "Mismatched drop", "NCS",
    )  # fmt: skip
    for row in found.rows:
        assert row[7].values[0] == pytest.approx(row[4].values[0] - row[6].values[0])
    assert {row[2].text for row in found.rows} == {"as it is", "options only"}


def test_a12_generic_damage(tmp_path: Path) -> None:
    found = table(analysed(syn.write_ncs(tmp_path, replace(WORLD, damage=True))), "damage-0-0", "12")
    assert found.columns == (
        "Head set", "Heads", "matched drop", "mismatched drop", "NCS", "NCS-v2", "text-arm drop, text masked",
    )  # fmt: skip
    assert found.rows[-1][0].text == "whole" and found.rows[-1][1].text == "16"


def cuts(world: syn.World, *sizes: int) -> list[HeadSet]:
    return [heads.top(k) for heads in PLAIN(replace(world, effects={"cm-ref-qsp": 0, "co-ref-qsp": 0})) for k in sizes]


PLAIN = syn.discovered


def world_of(monkeypatch: pytest.MonkeyPatch, sets: Sequence[HeadSet], effects: Sequence[float]) -> syn.World:
    """A world whose tested sets are these."""
    monkeypatch.setattr(syn, "discovered", lambda world: list(sets))
    return replace(WORLD, effects={s.name.split("/")[1]: e for s, e in zip(sets, effects, strict=True)})


def test_a14_set_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(monkeypatch, cuts(WORLD, 2, 4), [0.1, 0.2, 0.1, 0.3])
    a = analysed(syn.write_ncs(tmp_path, world))
    found = table(a, "wide-k-0-0", "14")
    assert list(body(found)) == ["2", "4"]
    assert found.columns == (
        "k", "cm-ref-qsp [95 % CI]", "cm-ref-qsp: controls ± SD", "cm-ref-qsp: p",
        "co-ref-qsp [95 % CI]", "co-ref-qsp: controls ± SD", "co-ref-qsp: p",
    )  # fmt: skip
    assert "Rank p" in table(a, "k-table-0", "14").columns


def test_a15_shared_and_own_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = PLAIN(replace(WORLD, effects={"cm-ref-qsp": 0}))[0]
    rest = [h for h in WORLD.geometry.all_heads() if h not in one.heads]

    def made(name: str, heads: Sequence[Any]) -> HeadSet:
        return HeadSet(f"tiny-digits/{name}", syn.MODEL, WORLD.geometry, tuple(heads))

    shared, own = one.heads[:5], (one.heads[5:], tuple(rest[:3]))
    sets = [made("a", shared + own[0]), made("b", shared + own[1]), made("both", shared)]
    sets += [made("a-only", own[0]), made("b-only", own[1])]
    world = world_of(monkeypatch, sets, [0.4, 0.4, 0.4, 0.0, 0.0])
    found = table(analysed(syn.write_ncs(tmp_path, world)), "parts", "15")
    assert found.columns == (
        "Pair", "Shared / first only / second only",
        "Shared", "Shared, p", "First only", "First only, p", "Second only", "Second only, p",
    )  # fmt: skip
    row = body(found)["tiny-digits/a / tiny-digits/b"]
    assert row[0] == "5 / 3 / 3"
    assert float(row[1]) == pytest.approx(0.4, abs=0.1) and float(row[3]) == pytest.approx(0, abs=0.1)


def test_a17_attention_mass(tmp_path: Path) -> None:
    found = table(analysed(syn.write_cers(tmp_path, WORLD)), "mass", "17")
    assert found.columns[2:4] == ("Mass of the set", "Mass of controls [range]")
    assert [c.split("(")[1].split(" ")[0] for c in found.columns[5:]] == ["mean", "median", "min", "max", "sd"]
    assert "uncorrected" in found.note


def test_a18_steering_strength(tmp_path: Path) -> None:
    a = analysed(syn.write_cers(tmp_path, replace(WORLD, betas=(1.0, 100.0, 3.0, "hard"))))
    found = table(a, "wide-beta-0", "18")
    assert list(body(found)) == ["1", "3", "100", "hard"]
    assert set(found.columns) == {
        "beta", "cm-ref-qsp", "cm-ref-qsp: controls [range]", "cm-ord-last", "cm-ord-last: controls [range]",
    }  # fmt: skip
    test = next(t for t in a.tests if t.effect.condition.endswith("=3") and "ref" in t.effect.name)
    cell = found.rows[1][found.columns.index("cm-ref-qsp: controls [range]")]
    assert cell.values == (test.effect.control_mean, min(test.effect.controls), max(test.effect.controls))


def test_a20_ceilings(tmp_path: Path) -> None:
    folders = [syn.write_ncs(tmp_path / "n", WORLD), *syn.write_discoveries(tmp_path / "d", WORLD)]
    found = table(analysed(*folders), "ceiling-0", "20")
    assert found.columns == (
        "What changes", "Pair", "Shared heads [2.5, 97.5 percentile]", "Ceiling", "Fraction", "Fraction above chance",
    )  # fmt: skip
    assert found.rows[0][0].text == "query type and source"
    assert found.rows[0][3].text == "8.0"


def test_a22_leak_audit(tmp_path: Path) -> None:
    a = analysed(syn.write_ncs(tmp_path / "n", replace(WORLD, mismatched=0.5)), syn.write_cers(tmp_path / "c", WORLD))
    found = table(a, "audit", "22")
    assert found.columns[:5] == ("Task", "CERS oracle", "CERS floor", "NCS matched", "NCS mismatched")
    assert strong(found, "ncs_digits", "NCS mismatched") and not strong(found, "ncs_digits", "NCS matched")
    assert body(found)["ncs_digits"][:2] == ["-", "-"] and body(found)["cers_digits"][2:4] == ["-", "-"]


def test_a26_gaps_by_task(tmp_path: Path) -> None:
    names = ("MMStar_pointing", "MathVista_pointing")
    found = table(analysed(*(syn.write_cers(tmp_path / n, WORLD, task=n) for n in names)), "tasks", "26")
    columns = [found.columns.index(c) for c in ("Control mean", "Gap")]
    own = columns[0] - 1
    assert found.columns[0] == "Task" and found.columns[own] == "Set"
    assert {row[0].text for row in found.rows} == set(names)
    for row in found.rows:
        assert row[columns[1]].values[0] == row[own].values[0] - row[columns[0]].values[0]


def test_a27_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [syn.write_cers(tmp_path / "one", WORLD)]
    monkeypatch.setattr(syn, "MODEL", ModelRef("other-model", "r2"))
    folders.append(syn.write_cers(tmp_path / "two", WORLD))
    found = table(analysed(*folders), "wide-models-0", "27")
    assert set(found.columns[:4]) == {"Model", "Baseline accuracy", "cm-ref-qsp", "cm-ord-last"}
    assert found.columns[-1] == "Controls of all sets, mean"
    assert set(body(found)) == {"tiny-digits", "other-model"}


# --- B ------------------------------------------------------------------------------------------------------------
GOLD, AWAY = [0.0, 0.0, 100.0, 100.0], [300.0, 300.0, 400.0, 400.0]


def write_boxes(folder: Path, world: syn.World, task: str, lost: dict[str, int]) -> Path:
    """A grounding run: each tested set puts the first ``lost[name]`` of 10 boxes elsewhere, each control the first."""
    sets = syn.table(world)
    condition = Condition("ablate")
    lines = []
    for i in range(10):
        answers = {}
        for entry in sets:
            name = entry.heads.name.split("/")[-1]
            wrong = 0 if entry.role == "empty" else lost[name] if entry.role == "discovered" else 1
            answers[entry.key] = AWAY if i < wrong else GOLD
        value: dict[str, Any] = json.loads(ProbeResult(boxes={condition.name: answers}).to_json())
        if i == 0:
            value["run"] = syn.run_block(world, sets, "ablate", [condition])
        region = {"locate": {"gold": {"boxes": [GOLD], "image": 0}}}
        record = syn._record(replace(world, items=10), task, "grounding", i, {"locate": value}, region)
        lines.append(json.dumps({"doc_id": i, "resps": [], "record": record.to_dict()}, ensure_ascii=False))
    return syn._files(folder, task, lines)


def test_b3_accuracy_under_ablation(tmp_path: Path) -> None:
    world = replace(WORLD, effects={"vrh": 0.0})
    folders = [write_boxes(tmp_path / t, world, t, {"vrh": n}) for t, n in (("refcoco", 9), ("toloka", 4))]
    a = analysed(*folders)
    found = table(a, "wide-accuracy", "3")
    assert found.columns == ("Model and condition", "refcoco", "toloka")
    assert body(found) == {
        "tiny-digits: baseline": ["100.0", "100.0"],
        "tiny-digits: controls of vrh (k = 8)": ["90.0 (-10.0)", "90.0 (-10.0)"],
        "tiny-digits: vrh (k = 8)": ["10.0 (-90.0)", "60.0 (-40.0)"],
    }
    outcomes = next(t for s in sections(a) for t in s.tables if t.id == "grounding")
    assert [row[outcomes.columns.index("Box elsewhere")].text for row in outcomes.rows] == ["0.900", "0.400"]


def test_b_a1_number_of_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = cuts(WORLD, 2, 4)[:2]
    world = world_of(monkeypatch, sets, [0.0, 0.0])
    lost = {"cm-ref-qsp@top2": 3, "cm-ref-qsp@top4": 8}
    found = table(analysed(write_boxes(tmp_path, world, "refcoco", lost)), "wide-accuracy-k", "A1")
    assert found.columns == ("Model, task and method", "k = 0", "k = 2", "k = 4")
    assert body(found) == {
        "tiny-digits, refcoco: controls of cm-ref-qsp": ["100.0", "90.0", "90.0"],
        "tiny-digits, refcoco: cm-ref-qsp": ["100.0", "70.0", "20.0"],
    }
