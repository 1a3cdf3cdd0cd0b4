"""Shipped sets, the resolver, and the check that a set is of the loaded model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness_heads.cli.main import main
from harness_heads.errors import HarnessHeadsError
from harness_heads.head_sets import check_model, default_for, fitting, model_id, resolve, shipped, shipped_path
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, load_head_set
from harness_heads.tiny import WEIGHTS

QWEN3 = ModelRef("Qwen/Qwen3-VL-8B-Instruct")
QWEN3_GEOMETRY = Geometry((32,) * 36, (8,) * 36)
BENCHMARKS = ("refcoco", "refcoco-plus", "refcocog", "toloka", "refspatial")
PUBLISHED = ("qwen2.5-vl-7b", "qwen3-vl-8b", "internvl3-8b", "internvl3.5-8b")


def vrh(model: str, benchmark: str = "refcoco") -> HeadSet:
    return resolve(f"vrh/{model}/{benchmark}")


def shared(a: HeadSet, b: HeadSet) -> int:
    return len(set(a) & set(b))


def test_twenty_published_sets_of_twenty_heads_each_with_its_table() -> None:
    published = [resolve(name) for name in shipped() if name.startswith("vrh/")]
    assert {s.name for s in published} == {f"vrh/{m}/{b}" for m in PUBLISHED for b in BENCHMARKS}
    tables = dict(zip(BENCHMARKS, ("A2", "A3", "A4", "A5", "A6"), strict=True))
    for head_set in published:
        assert len(head_set) == 20
        assert head_set.provenance["table"] == tables[head_set.name.rsplit("/", 1)[1]]


def test_captions_follow_their_tables() -> None:
    """The first list of the text is Table A2, RefCOCO."""
    assert vrh("qwen3-vl-8b").heads[:5] == (Head(20, 15), Head(21, 10), Head(18, 19), Head(18, 15), Head(21, 11))
    assert vrh("qwen2.5-vl-7b", "refspatial").heads[:3] == (Head(19, 17), Head(19, 22), Head(19, 20))


@pytest.mark.parametrize(
    ("one", "other", "golden"),
    [
        ("qwen3-vl-8b", "internvl3.5-8b", (18, 18, 16, 15, 15)),
        ("qwen2.5-vl-7b", "internvl3-8b", (15, 16, 14, 16, 16)),
    ],
)
def test_golden_overlaps_of_models_with_one_backbone(one: str, other: str, golden: tuple[int, ...]) -> None:
    assert tuple(shared(vrh(one, b), vrh(other, b)) for b in BENCHMARKS) == golden


@pytest.mark.parametrize("model", PUBLISHED)
def test_golden_overlaps_across_benchmarks_lie_between_14_and_20(model: str) -> None:
    sets = [vrh(model, b) for b in BENCHMARKS]
    overlaps = [shared(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
    assert min(overlaps) >= 14 and max(overlaps) <= 20


def test_golden_kv_groups() -> None:
    """Qwen2.5-VL's twenty heads sit in 10 key/value groups, Qwen3-VL's in 16."""
    for model, groups in (("qwen2.5-vl-7b", 10), ("qwen3-vl-8b", 16)):
        head_set = vrh(model)
        assert len({(h.layer, head_set.geometry.kv_group(h)) for h in head_set}) == groups


def test_file_names_and_set_names_agree() -> None:
    for name in shipped():
        assert load_head_set(shipped_path(name)).name == name


def test_digest_pins_the_content(tmp_path: Path) -> None:
    head_set = vrh("qwen3-vl-8b")
    assert resolve(f"{head_set.name}@{head_set.key}") == head_set
    path = tmp_path / "mine.json"
    head_set.save(path)
    pinned = f"{path}@{head_set.identity[:8]}"
    assert resolve(pinned).identity == head_set.identity
    value = json.loads(path.read_text())
    value["heads"].pop()
    path.write_text(json.dumps(value))
    with pytest.raises(HarnessHeadsError, match="was edited since"):
        resolve(pinned)


def test_a_saved_set_reads_back_with_one_head_a_line(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    head_set = replace(vrh("qwen3-vl-8b"), provenance={})
    head_set.save(path)
    assert load_head_set(path) == head_set
    assert sum(line.startswith("  [") for line in path.read_text().splitlines()) == 20


def test_a_discovery_folder_is_a_spec(tmp_path: Path) -> None:
    vrh("internvl3-8b").save(tmp_path / "head_set.json")
    assert resolve(str(tmp_path)) == vrh("internvl3-8b")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("vrh/qwen3-vl-8b/refcoc", "did you mean 'vrh/qwen3-vl-8b/refcoco'"),
        ("nothing-like-it", r"unknown head set 'nothing-like-it'\. `harness-heads head-sets` lists"),
        ("", "is empty; name one"),
        ("transfer:", "is empty; name one"),
        ("x" * 5000, "unknown head set"),
        ("vrh/qwen3-vl-8b/refcoco@zz", "'zz' is no digest"),
        ("vrh/qwen3-vl-8b/refcoco@0123456789", "was edited since"),
        ("no/such/file.json", "does not exist"),
    ],
)
def test_resolver_errors(spec: str, words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        resolve(spec)


def test_unknown_set_lists_what_fits_the_model() -> None:
    with pytest.raises(HarnessHeadsError, match="known: only/this"):
        resolve("nothing-like-it", fits=["only/this"])
    with pytest.raises(HarnessHeadsError, match="none fits this model"):
        resolve("nothing-like-it", fits=[])


def test_fitting_and_default() -> None:
    assert fitting(QWEN3.id, QWEN3_GEOMETRY) == sorted(f"vrh/qwen3-vl-8b/{b}" for b in BENCHMARKS)
    assert fitting(QWEN3.id, Geometry((32,) * 35)) == []
    assert default_for(QWEN3.id) == "vrh/qwen3-vl-8b/refcoco"
    assert default_for("tiny-digits") == "tiny-digits/dg-ref-qsp"
    with pytest.raises(HarnessHeadsError, match="no head set is shipped for some/model"):
        default_for("some/model")


def test_models_are_known_by_id_whatever_the_path(tmp_path: Path) -> None:
    local = tmp_path / "Qwen3-VL-8B-Instruct"
    local.mkdir()
    digits = tmp_path / "seed-3"
    digits.mkdir()
    (digits / "config.json").write_text(json.dumps({"name": "tiny-digits"}))
    assert model_id(str(local)) == QWEN3.id
    assert model_id("/c/models--Qwen--Qwen3-VL-8B-Instruct/snapshots/abc") == QWEN3.id
    assert model_id(str(digits)) == "tiny-digits"
    assert model_id("tiny-digits") == "tiny-digits"
    assert model_id(str(tmp_path)) == str(tmp_path)
    assert WEIGHTS.name == "weights"


def test_a_set_of_the_loaded_model_passes_unchanged() -> None:
    head_set = vrh("qwen3-vl-8b")
    assert check_model(head_set, QWEN3, QWEN3_GEOMETRY).identity == head_set.identity


def test_a_set_of_another_model_is_refused_unless_transfer_is_asked_for() -> None:
    name = "vrh/internvl3.5-8b/refcoco"
    with pytest.raises(HarnessHeadsError, match=f"was made for .*InternVL3_5.*; transfer:{name} would transfer it"):
        check_model(resolve(name), QWEN3, QWEN3_GEOMETRY)
    moved = check_model(resolve(f"transfer:{name}"), QWEN3, QWEN3_GEOMETRY)
    assert moved.model == QWEN3
    assert moved.heads == resolve(name).heads
    assert moved.provenance["transferred_from"] == resolve(name).model.id


def test_transfer_needs_the_same_geometry() -> None:
    with pytest.raises(HarnessHeadsError, match=r"28 layers of 28 heads, .* has 36 layers of 32 heads"):
        check_model(resolve("transfer:vrh/internvl3-8b/refcoco"), QWEN3, QWEN3_GEOMETRY)
    with pytest.raises(HarnessHeadsError, match="made for OpenGVLab/InternVL3-8B-hf, not for Qwen/Qwen3"):
        check_model(resolve("vrh/internvl3-8b/refcoco"), QWEN3, QWEN3_GEOMETRY)


def test_a_file_with_unsound_facts_is_refused_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    value = vrh("qwen3-vl-8b").to_dict()
    value["provenance"] = {"facts": {"image_mas": []}}
    path.write_text(json.dumps(value))
    with pytest.raises(HarnessHeadsError, match=r"mine\.json: facts holds an unknown measure"):
        resolve(str(path))


def test_an_unknown_name_is_answered_in_one_line_of_bearable_length(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError) as caught:
        resolve("vrh/qwen3-vl-8b/refcoc")
    assert "did you mean 'vrh/qwen3-vl-8b/refcoco'" in str(caught.value) and len(str(caught.value)) < 200
    with pytest.raises(HarnessHeadsError, match=r"is a folder without head_set\.json"):
        resolve(str(tmp_path))


def test_the_command_lists_what_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head-sets"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in shipped())
