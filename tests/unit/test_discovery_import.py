"""Foreign head lists."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_heads.cli.import_ import default_name, parse_geometry
from harness_heads.cli.main import main
from harness_heads.discovery.geometry import geometry_of, geometry_of_config
from harness_heads.discovery.importing import import_heads
from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef

GEOMETRY = Geometry((32,) * 20)


def read(source: str, **options: object) -> HeadSet:
    return import_heads(source, name="mine", model=ModelRef("m"), geometry=GEOMETRY, **options)  # type: ignore[arg-type]


WANTED = (Head(16, 19), Head(16, 2))


@pytest.mark.parametrize(
    "text",
    ["16-19,16-2", "16-19, 16-2", "16.19;16.2", "(16,19) (16,2)", "(16, 19), (16, 2)", "L16.H19\nL16.H2", "16:19 16:2"],
)
def test_text_lists(text: str) -> None:
    assert read(text).heads == WANTED


@pytest.mark.parametrize(
    ("name", "content", "scores"),
    [
        ("plain.csv", "16,19\n16,2\n", (None, None)),
        ("named.csv", "head,layer,score\n19,16,0.5\n2,16,0.25\n", (0.5, 0.25)),
        ("scored.csv", "16,19,0.5\n16,2,0.25\n", (0.5, 0.25)),
        ("named.tsv", "layer_idx\thead_idx\n16\t19\n16\t2\n", (None, None)),
        ("pairs.json", "[[16, 19], [16, 2, 0.25]]", (None, 0.25)),
        ("objects.json", '[{"layer": 16, "head": 19}, {"head": 2, "layer": 16}]', (None, None)),
        ("inside.json", '{"heads": ["16-19", "16-2"]}', (None, None)),
        ("scores.json", '{"16-2": 0.25, "16-19": 0.5}', (0.5, 0.25)),
        ("tests.json", '{"16-2": [0.1, 0.3], "16-19": [0.5, 0.7]}', (0.6, 0.2)),
        ("words.txt", "16-19\n16-2\n", (None, None)),
    ],
)
def test_files(tmp_path: Path, name: str, content: str, scores: tuple[float | None, ...]) -> None:
    file = tmp_path / name
    file.write_text(content)
    found = read(str(file))
    assert found.heads == WANTED
    assert found.scores == pytest.approx(scores) if None not in scores else found.scores == scores
    assert found.provenance["kind"] == "imported"
    assert found.provenance["source"] == name


def test_order_and_base() -> None:
    assert read("19-16,2-16", order="head,layer").heads == WANTED
    assert read("17-20,17-3", base=1).heads == WANTED


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("16-19,16", {}, "'16' is no head"),
        ("16-19,16-19", {}, "named 2 times"),
        ("16-32", {}, "head 32 is out of range.*try --order head,layer or --base 1"),
        ("25-16", {}, "layer 25 is out of range"),
        ("0-3", {"base": 1}, "lies below base 1"),
        ("16-19", {"base": 2}, "count from 0 or from 1"),
        ("16-19", {"order": "hl"}, "write layer,head or head,layer"),
        ("absent.csv", {}, "no such file"),
        ("[[16.5, 2]]", {}, "'16.5' is no index"),
        ("[16, 19]", {}, "16 is no head"),
        ("[", {}, "it is not JSON"),
        ("", {}, "no head in it"),
        ('[[16, 19, "best"]]', {}, "'best' is no score"),
        ("[[16, 19, NaN]]", {}, "nan is no score"),
        ('{"16-19": [0.5, "x"]}', {}, "score of 16-19 is 'x'"),
        ('{"16-19": {}}', {}, "{} is no score"),
        ('[{"layer": 16}]', {}, "'None' is no index"),
        ("9" * 5000 + "-1", {}, "is no head"),
        ("16-²", {}, "is no head"),
    ],
)
def test_errors(source: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        read(source, **options)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 20) | st.floats() | st.sampled_from(["1-2", "x", "", "0.5", "layer"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["heads", "layer", "head", "1-2"]), inner)
    ),
    max_leaves=6,
)


@given(JSON)
def test_whatever_json_is_imported_only_our_error_comes_out(value: object) -> None:
    with suppress(HarnessHeadsError):
        read(json.dumps(value))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe1")
    with pytest.raises(HarnessHeadsError, match=r"odd\.txt: it cannot be read as text"):
        read(str(tmp_path / "odd.txt"))


def test_two_lists_never_share_a_name_by_default(tmp_path: Path) -> None:
    (tmp_path / "top.csv").write_text("16,19\n")
    assert default_name(str(tmp_path / "top.csv"), None) == "top"
    assert default_name("16-19,16-2", Path("out/mine.json")) == "mine"
    one, other = default_name("L16.H19", None), default_name("L16.H2", None)
    assert one.startswith("heads-") and one != other


def test_geometry_from_words_sets_and_configurations() -> None:
    assert parse_geometry("36x32x8") == Geometry((32,) * 36, (8,) * 36)
    assert parse_geometry("28x28") == Geometry((28,) * 28)
    with pytest.raises(HarnessHeadsError, match="LAYERSxHEADS"):
        parse_geometry("28")
    assert geometry_of("Qwen/Qwen3-VL-8B-Instruct") == Geometry((32,) * 36, (8,) * 36)

    class Hybrid:
        num_hidden_layers, num_attention_heads, num_key_value_heads = 3, 8, 2
        layer_types = ("linear_attention", "full_attention", "sliding_attention")

    assert geometry_of_config(Hybrid()) == Geometry((0, 8, 8), (0, 2, 2))
    with pytest.raises(HarnessHeadsError, match="names no layers"):
        geometry_of_config(object())


def test_a_configuration_out_of_reach_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-type"}))
    with pytest.raises(HarnessHeadsError, match="give --geometry"):
        geometry_of(str(tmp_path))


def test_another_set_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same import again is; what the file held is kept otherwise."""
    file = tmp_path / "mine.json"
    fixed = ["--model", "some/model", "--geometry", "4x4", "-o", str(file)]
    assert main(["import", "1-2,0-3", *fixed]) == 0
    before = file.read_bytes()
    assert main(["import", "1-2,0-3", *fixed]) == 0
    assert main(["import", "1-2,0-1", *fixed]) != 0
    assert "mine.json exists and holds something else; remove it, or name another file" in capsys.readouterr().err
    assert file.read_bytes() == before
