"""Every shipped task, built from a few rows in the hub's own schema; and the traps that each data set sets."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from task_yaml import config_of

from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import probe_from_dict
from harness_heads.tasks.answer_forms import open_answer, split_options
from harness_heads.tasks.data import DATA_ROOT, DATA_VARIABLE, open_data
from harness_heads.tasks.items import to_docs
from harness_heads.tasks.pictures import BAND, caption, marks, paint
from harness_heads.tasks.question import Question, Unreadable, near_numbers, wrong_answers
from harness_heads.tasks.readers import READER_OPTIONS, read_questions
from harness_heads.tasks.recipes import RECIPES
from harness_heads.tasks.recipes.classes import ClassPool, _clash, split_synonyms
from harness_heads.tasks.recipes.grounding import mask_runs, split_rows
from harness_heads.tasks.sources import RowsSource, Source
from harness_heads.tasks.spec import DataRef, TaskSpec, spec_from_config

ROOT = Path(__file__).resolve().parents[2]
HUB = ROOT / "tests" / "fixtures" / "hub"
NAMES = sorted(
    path.stem for path in (ROOT / "tasks").rglob("*.yaml") if not path.read_text(encoding="utf-8").startswith("group:")
)
BROUGHT = [n for n in NAMES if "digits" not in n]


@pytest.fixture(autouse=True)
def fixtures_as_data(monkeypatch):
    monkeypatch.setenv(DATA_ROOT, str(HUB))
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


def png(shade: int) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (40, 40), (shade,) * 3).save(buffer, "PNG")
    return buffer.getvalue()


PNG = png(127)


def spec_of(name: str, n: int = 4, **options: Any) -> TaskSpec:
    spec = spec_from_config(config_of(name))
    if spec.recipe == "grounding":
        options = {"detection": 6, **options}
    return replace(spec, n=n, options={**spec.options, **options})


@cache
def source_of(data: DataRef) -> Source:
    """Rows of the fixtures; opened once for all tests."""
    return open_data(data, "fixture")


def built(spec: TaskSpec, source: Source | None = None) -> tuple[Source, list[dict[str, Any]]]:
    source = source or source_of(spec.data)
    recipe = RECIPES[spec.recipe]
    return source, to_docs(recipe.build(spec, source), spec, recipe.version)


@pytest.mark.parametrize("name", BROUGHT)
def test_every_task_builds_from_the_hubs_schema(name):
    spec = spec_of(name)
    source, docs = built(spec)
    assert len(docs) == len({doc["item"] for doc in docs}) == 4
    for doc in docs:
        for arm in doc["arms"].values():
            probe = probe_from_dict(arm["probe"])
            assert arm["text"].strip() and "{" not in arm["text"]
            if doc is not docs[0]:
                continue
            for picture in arm["pictures"]:
                image = paint(picture, source)
                assert image.mode == "RGB"
                for region in probe.regions.values():
                    assert region.inside(*image.size, name).boxes == region.boxes
        if doc["options"]:
            assert doc["options"][doc["correct"]] not in doc["options"][: doc["correct"]]
            assert len({o.casefold() for o in doc["options"]}) == len(doc["options"])
            first = next(iter(doc["arms"].values()))
            assert all(option in first["text"] for option in doc["options"])
    if docs[0]["arms"].keys() & {"grid", "matched"}:
        assert sorted(doc["correct"] for doc in docs) == [0, 1, 2, 3]
    again = RECIPES[spec.recipe]
    assert to_docs(again.build(spec, source), spec, again.version) == docs


SCORED = [n for n in BROUGHT if not n.startswith(("grounding", "vqa"))]
GRIDS = [n for n in SCORED if not n.startswith(("ncs_imagenet", "ncs_strip", "ood_ncs"))]


@pytest.mark.parametrize("name", SCORED)
def test_every_prefix_of_a_multiple_of_four_is_balanced(name):
    """Over letters, and on grids over both cells."""
    _, docs = built(spec_of(name, n=8))
    for end in (4, 8):
        assert sorted(doc["correct"] for doc in docs[:end]) == sorted([0, 1, 2, 3] * (end // 4))
        for role in ("correct", "distractor") if name in GRIDS else ():
            assert sorted(doc["extra"]["cell"][role] for doc in docs[:end]) == sorted([0, 1, 2, 3] * (end // 4))


def test_the_grids_are_all_of_them():
    assert len(GRIDS) == 14 + 8 + 4


def test_a_task_never_shrinks_silently():
    with pytest.raises(HarnessHeadsError, match=r"400 items are planned.*gives \d+"):
        built(spec_of("CountBenchQA_pointing", n=400))


# --- ImageNet ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "clash"),
    [
        ("crane", "crane2", True),
        ("tiger cat", "tiger, Panthera tigris", True),
        ("maillot", "maillot, tank suit", True),
        ("sunglass", "sunglasses, dark glasses, shades", True),
        ("missile", "projectile, missile", True),
        ("naïve", "nai\u0308ve", True),
        ("猫", "猫", True),
        ("barn", "barn spider, Araneus cavaticus", True),
        ("tench, Tinca tinca", "goldfish, Carassius auratus", False),
        ("bass", "basset, basset hound", False),
        ("horse", "horses", True),
        ("猫", "犬", False),
    ],
)
def test_names_that_cannot_stand_beside_each_other(a, b, clash):
    assert _clash(split_synonyms(a), split_synonyms(b)) is clash
    assert _clash(split_synonyms(b), split_synonyms(a)) is clash


def test_mismatched_images_of_imagenet_show_none_of_the_options():
    """By the label of the row that is shown, and by every synonym of its name."""
    spec = spec_of("ncs_imagenet", n=40)
    source, docs = built(spec)
    names = source.names("label") or ()
    for doc in docs:
        [shown] = doc["arms"]["mismatched"]["pictures"]
        label = split_synonyms(names[source.value(shown["row"], "label")])
        assert label[0] == doc["extra"]["absent"]
        assert not any(_clash(label, split_synonyms(option)) for option in doc["options"])


def test_options_show_one_synonym_and_never_two_that_clash():
    spec = spec_of("ncs_imagenet", n=40)
    source = source_of(spec.data)
    pool = ClassPool(source, spec, np.random.default_rng(0))
    for doc in RECIPES[spec.recipe].build(spec, source):
        names = [split_synonyms(o) for o in (*doc.options, doc.extra["absent"])]
        assert not any(_clash(a, b) for i, a in enumerate(names) for b in names[:i])
        assert not any("," in option for option in doc.options)
    cranes = [key for key in pool.classes if pool.name(key) == "crane"]
    assert len(cranes) == 2 and pool.clash(*cranes)


def test_strange_class_names_survive(tmp_path, monkeypatch):

    names = ("naïve", "猫", "ß", "a|b", "<script>", "שלום")
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        for copy in range(2):
            Image.new("RGB", (32, 32), (40 * number, 99 * copy, 0)).save(tmp_path / name / f"{copy}.png")
    monkeypatch.setenv(DATA_VARIABLE, f'{{"ncs_imagenet": "{tmp_path}"}}')
    spec = spec_of("ncs_imagenet", n=8)
    _, docs = built(spec, open_data(spec.data, spec.task))
    shown = {option for doc in docs for option in doc["options"]}
    assert {"naïve", "猫", "ß"} <= shown <= set(names)


def test_too_few_unambiguous_names_are_an_error(tmp_path, monkeypatch):

    for name in ("cat", "cats", "tiger cat", "big cat", "cat2", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (32, 32)).save(tmp_path / name / "1.png")
    monkeypatch.setenv(DATA_VARIABLE, f'{{"ncs_imagenet": "{tmp_path}"}}')
    spec = spec_of("ncs_imagenet")
    with pytest.raises(HarnessHeadsError, match="only 1 of 4 unambiguous"):
        built(spec, open_data(spec.data, spec.task))


# --- questions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stem", "options"),
    [
        (
            "Which?\nOptions: A: The suitcase, a red one., B: Beneath the cat., C: On B, D: x",
            "Which?",
            ["The suitcase, a red one", "Beneath the cat", "On B", "x"],
        ),
        ("See it.\nChoices:\n(A) red, or so\n(B) blue", "See it.", ["red, or so", "blue"]),
        ("How many?\n(A) 1\n(B) 2\n(C) 3", "How many?", ["1", "2", "3"]),
    ],
)
def test_options_inside_questions(text, stem, options):
    assert split_options(text) == (stem, options)


def test_questions_without_readable_options_are_left_out():
    with pytest.raises(Unreadable):
        split_options("Is vitamin A: good for you?")
    spec = spec_of("vqa_mmstar")
    questions = read_questions(spec, source_of(spec.data), lambda n: option_of(spec, n))
    assert len(questions) == 20  # 4 of 24 rows have none


def option_of(spec: TaskSpec, name: str) -> Any:
    return spec.options.get(name, READER_OPTIONS[name].default)


def questions_of(name: str) -> list[Question]:
    spec = spec_of(name)
    return read_questions(spec, source_of(spec.data), lambda n: option_of(spec, n))


def test_cvbench_answers_have_parentheses():
    questions = questions_of("vqa_cvbench")
    assert len(questions) == 48
    assert questions[2].answer == "2" and set(questions[2].wrong) == {"3", "1", "0", "5"}
    assert Counter(len(q.wrong) for q in questions) == {4: 12, 1: 36}


def test_countbench_never_shows_its_caption():
    for name in ("CountBenchQA_pointing", "vqa_countbenchqa", "ood_ncs_countbenchqa"):
        _, docs = built(spec_of(name))
        assert not any("A photo of" in arm["text"] for doc in docs for arm in doc["arms"].values())


def test_mathvista_answers_are_texts_and_free_forms_are_numbers():
    questions = questions_of("vqa_mathvista")
    assert questions[0].answer == "20°" and questions[0].kind == "choice"
    assert (questions[2].answer, questions[2].kind, questions[2].wrong) == ("2", "number", ())
    assert questions[0].picture["column"] == "decoded_image"


def test_spatial457_answers_have_kinds():
    questions = questions_of("vqa_spatial457")
    assert [(q.answer, q.kind) for q in questions[:3]] == [("gray", "0"), ("1", "number"), ("no", "yes_no")]
    assert questions[5].answer == "yes"  # "True"


def test_spatialrgpt_reads_literals_and_gold_sentences_and_draws_its_regions():
    questions = questions_of("vqa_spatialrgpt")
    assert len(questions) == 16  # every fifth row is a distance
    assert [q.answer for q in questions[:4]] == ["yes", "no", "yes", "no"]
    picture = questions[0].picture
    assert picture["kind"] == "marks" and picture["labels"] == ["Region [0]", "Region [1]"]
    assert picture["boxes"][1] == [30.5, 10.0, 70.0, 44.0]


class Dark:
    """Images of one colour."""

    def image(self, row: int, column: str) -> Image.Image:
        return Image.new("RGB", (320, 240), (90, 80, 110))


ROW = {"kind": "row", "row": 0, "column": "i"}


@pytest.mark.parametrize("second", [(20, 15, 120, 110), (24, 12, 300, 90), (60, 0, 320, 240)])
def test_labels_of_regions_hide_neither_each_other_nor_the_picture(second):
    """Boxes that start at one place had one label over the other."""
    boxes = [(20, 20, 120, 110), second]
    image = np.asarray(paint(marks(ROW, boxes, ["Region [0]", "Region [1]"]), Dark())).astype(int)
    assert (image == (90, 80, 110)).all(axis=2).mean() > 0.8
    one = np.asarray(paint(marks(ROW, boxes[:1], ["Region [0]"]), Dark())).astype(int)
    white = (one.min(axis=2) > 180).sum()
    assert white > 20
    assert (image.min(axis=2) > 180).sum() > 1.8 * white


def test_vaw_uses_annotated_negatives_only():
    spec = spec_of("vqa_vaw")
    source = source_of(spec.data)
    by_text = {}
    for question in questions_of("vqa_vaw"):
        row = question.picture["base"]["row"]
        by_text[row] = question
        assert question.answer in source.value(row, "positive_attributes")
        assert set(question.wrong) <= set(source.value(row, "negative_attributes"))
        assert question.picture["boxes"] == [[12.0, 10.0, 40.0, 36.0]]  # x, y, w, h in the data
    assert 0 not in by_text and 5 not in by_text  # too few negatives; no positive


def question(**changes: Any) -> Question:
    base = Question("How many?", "3", (), "number", {"kind": "row", "row": 0, "column": "i", "sha": "x"}, "c")
    return replace(base, **changes)


def test_wrong_answers():
    options = {"pools": [["red", "blue", "green", "white"]], "fill": ["none"]}
    rng = np.random.default_rng(0)
    near = wrong_answers(question(), 3, options.__getitem__, rng)
    assert set(near) <= {"2", "4", "1", "5"} and len(set(near)) == 3 and {"2", "4"} <= set(near)
    assert set(wrong_answers(question(answer="red", kind="0"), 3, options.__getitem__, rng)) == {
        "blue",
        "green",
        "white",
    }
    assert wrong_answers(question(answer="yes", kind="yes_no"), 2, options.__getitem__, rng) == ["no", "none"]
    own = question(answer="a", wrong=("b", "c", "d"), kind="choice")
    assert set(wrong_answers(own, 3, options.__getitem__, rng)) == {"b", "c", "d"}
    with pytest.raises(Unreadable, match="too few"):
        wrong_answers(question(answer="yes", kind="yes_no"), 3, options.__getitem__, rng)


def test_near_numbers_are_not_negative():
    assert all(int(v) >= 0 for seed in range(9) for v in near_numbers(0, np.random.default_rng(seed)))
    assert set(near_numbers(0, np.random.default_rng(0))[:3]) == {"1", "2", "3"}


@pytest.mark.parametrize(
    ("answer", "read"),
    [(7, ("7", "number")), ("4.0", ("4", "number")), ("True", ("yes", "yes_no")), ("Red", ("Red", "0"))],
)
def test_open_answers(answer, read):
    assert open_answer(answer, [["red", "blue"]]) == read


def test_open_answers_of_no_kind_are_left_out():
    for answer in ("", "1.5", "chartreuse", None):
        with pytest.raises(Unreadable):
            open_answer(answer, [["red", "blue"]])


def test_rows_with_bad_options_are_left_out(monkeypatch, tmp_path):
    rows = '[{"image": "a.png", "question": "Which?", "answer": "A", "choices": %s}]'

    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    spec = TaskSpec(
        "t",
        "plain_mcq",
        spec_of("vqa_cvbench").data,
        {"image": "image", "question": "question", "choices": "choices", "answer": "answer"},
        1,
        1,
    )
    for choices, why in (
        ('["x", "X "]', "equal options"),
        ('["x", ""]', "an empty option"),
        ('["x", null]', "an empty option"),
        ('["all of the above", "y"]', "options that speak of other options"),
        ('["B and C", "y"]', "options that speak of other options"),
        ('["The x", "x"]', "equal options"),
        ('"xy"', "a cell that is no literal"),
        ('"5"', "a cell that is no list"),
        ("5", "a cell that is no list"),
        ('{"A": "x"}', "a cell that is no list"),
        ('[["x"], "y"]', "a cell that is neither a text nor a number"),
    ):
        (tmp_path / "test.json").write_text(rows % choices, encoding="utf-8")
        monkeypatch.setenv(DATA_VARIABLE, f'{{"t": "{tmp_path}"}}')
        with pytest.raises(HarnessHeadsError, match=f"t: no row of .* can be read: 1 with {why}"):
            read_questions(spec, open_data(spec.data, "t"), lambda n: option_of(spec, n))


CELLS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.sampled_from(["", "A", "x, y", "[1, 2]", "yes"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["category", "from", "value"]), inner),
    max_leaves=5,
)
ROLES = ("question", "choices", "answer", "group", "boxes", "object", "negative", "cluster")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(READER_OPTIONS["reader"].choices),
    st.sampled_from(READER_OPTIONS["answer"].choices),
    st.lists(st.fixed_dictionaries(dict.fromkeys(ROLES, CELLS)), min_size=1, max_size=3),
)
def test_whatever_cells_hold_they_are_read_or_left_out(reader, answer, rows):
    options = {"reader": reader, "answer": answer}
    spec = TaskSpec(
        "t", "plain_mcq", DataRef("a/b"), {"image": "image", **{r: r for r in ROLES}}, 1, 1, options=options
    )
    source = RowsSource([{"image": PNG, **row} for row in rows], ("image", *ROLES), {}, "rows")
    with suppress(HarnessHeadsError):
        for found in read_questions(spec, source, lambda n: option_of(spec, n)):
            assert found.text.strip() and all(text.strip() and text != "None" for text in (found.answer, *found.wrong))


@pytest.mark.parametrize(
    ("value", "names", "says"),
    [
        ({"a": 1}, None, "row 0, column 'label': a dict is no class name"),
        (np.zeros((2, 2)), None, "a ndarray is no class name"),
        (7, ["a", "b"], "7 is no class number 0..1"),
        (-2, ["a", "b"], "-2 is no class number"),
        ("a", ["a", "b"], "'a' is no class number"),
    ],
)
def test_labels_that_name_no_class(value, names, says):
    source = RowsSource([{"image": PNG, "label": value}], ("image", "label"), {"label": names} if names else {}, "rows")
    spec = TaskSpec("t", "mcq_matched_mismatched", DataRef("a/b"), {"image": "image", "label": "label"}, 1, 1)
    with pytest.raises(HarnessHeadsError, match=says):
        ClassPool(source, spec, np.random.default_rng(0))


def test_rows_without_a_cluster_do_not_all_share_one():
    rows = [{"image": png(shade), "question": "Is it?", "answer": "yes", "cluster": None} for shade in (10, 200)]
    columns = {role: role for role in ("image", "question", "answer", "cluster")}
    spec = TaskSpec("t", "plain_mcq", DataRef("a/b"), columns, 1, 1)
    one, other = read_questions(spec, RowsSource(rows, tuple(columns), {}, "rows"), lambda n: option_of(spec, n))
    assert one.cluster != other.cluster


def test_overlay_shows_the_right_answer_in_the_right_cell():
    for name in ("CV-Bench_pointing", "VAW_pointing", "ood_cers_mathvista"):
        _, docs = built(spec_of(name))
        for doc in docs:
            cells = doc["arms"]["grid"]["pictures"][0]["cells"]
            assert cells[doc["extra"]["cell"]["correct"]]["text"] == doc["options"][doc["correct"]]
            wrong = cells[doc["extra"]["cell"]["distractor"]]["text"]
            assert wrong == doc["options"][doc["extra"]["distractor_option"]]
            assert len({str(cell["base"]) for cell in cells}) == 1
    _, docs = built(spec_of("CV-Bench_pointing", correct_overlay="none"))
    for doc in docs:
        cells = doc["arms"]["grid"]["pictures"][0]["cells"]
        assert [not cell["text"] for cell in cells].index(True) == doc["extra"]["cell"]["correct"]


def test_retrieval_shows_four_images_and_offers_their_answers():
    source, docs = built(spec_of("spatial457_pointing"))
    for doc in docs:
        cells = doc["arms"]["grid"]["pictures"][0]["cells"]
        answers = [source.value(cell["row"], "answer") for cell in cells]
        assert len({cell["sha"] for cell in cells}) == 4
        assert answers[doc["extra"]["cell"]["correct"]] == doc["options"][doc["correct"]]
        assert answers[doc["extra"]["cell"]["distractor"]] == doc["options"][doc["extra"]["distractor_option"]]
        asked = source.value(cells[doc["extra"]["cell"]["correct"]]["row"], "question")
        assert asked in doc["arms"]["grid"]["text"]


def test_mismatched_images_belong_to_another_answer():
    source, docs = built(spec_of("ood_ncs_countbenchqa"))
    for doc in docs:
        [matched], [other] = (doc["arms"][arm]["pictures"] for arm in ("matched", "mismatched"))
        assert matched["sha"] != other["sha"]
        assert str(source.value(other["row"], "number")) != doc["options"][doc["correct"]]
        assert str(source.value(other["row"], "number")) not in doc["options"]
        assert doc["extra"]["mismatched_shows_option"] is False
    _, docs = built(spec_of("ood_ncs_countbenchqa", mismatched="grey"))
    assert docs[0]["arms"]["mismatched"]["pictures"][0]["kind"] == "blank"


def test_a_mismatched_image_whose_answer_is_an_option_is_named_so():
    """Predicate questions have the answers yes and no, and both are always options."""
    _, docs = built(spec_of("ood_ncs_spatialrgpt"))
    assert all(doc["extra"]["mismatched_shows_option"] for doc in docs)


def test_both_halves_of_an_audit_are_the_same_grids():
    halves = [built(spec_of(f"{name}_imagenet_audited"))[1] for name in ("ncs_grid", "cers")]
    for masked, steered in zip(*halves, strict=True):
        for key in ("options", "correct", "cluster"):
            assert masked[key] == steered[key]
        assert masked["arms"]["grid"]["pictures"] == steered["arms"]["grid"]["pictures"]
        assert masked["arms"]["pixels_correct"]["pictures"] == steered["arms"]["pixels_correct"]["pictures"]


def test_captions_stay_clear_of_the_photo_and_of_the_line_between_cells():
    """Letters at the band's edge were cut by the gap."""
    for text in ("21", "gypsy jug q", "It is beneath the book", "Of four lines it is, or more, to be shown " * 3):
        cell = np.asarray(paint(caption(ROW, text, (336, 336)), Dark())).min(axis=2)
        dark = np.flatnonzero((cell[round(336 * (1 - BAND)) :] < 128).any(axis=1))
        band = 336 - round(336 * (1 - BAND))
        assert dark[0] >= 4 and dark[-1] < band - 4, text
        assert abs((dark[0] + dark[-1]) / 2 - band / 2) < 8


def test_answers_in_words_carry_no_probe_of_their_own():
    for name in NAMES:
        if name.startswith("vqa_"):
            _, docs = built(spec_of(name))
            assert {tuple(doc["arms"]) for doc in docs} == {("plain",)}
            assert all(doc["arms"]["plain"]["probe"]["conditions"] == [] for doc in docs)


# --- grounding -----------------------------------------------------------------------------------------------


def test_refcoco_boxes_are_xywh_and_expressions_are_in_answer():
    source, docs = built(spec_of("grounding_refcoco"))
    for doc in docs:
        row = doc["extra"]["row"]
        x, y, w, h = source.value(row, "bbox")
        assert doc["extra"]["gold"] == [x, y, x + w, y + h]
        probe = probe_from_dict(doc["arms"]["locate"]["probe"])
        assert probe.expression == source.value(row, "answer")[0]
        assert probe.regions["gold"].boxes == ((x, y, x + w, y + h),)
        assert [c.name for c in probe.conditions] == ["ablate:zero"]
        assert "circled" not in doc["arms"]["locate"]["text"]
    _, docs = built(spec_of("grounding_refcoco_masked"))
    assert docs[0]["arms"]["locate"]["probe"]["conditions"][0]["op"] == "mask"


def test_expressions_can_be_all_of_an_object():
    _, docs = built(spec_of("grounding_refcoco", expressions="all"))
    assert docs[0]["extra"]["row"] == docs[1]["extra"]["row"]
    assert docs[0]["extra"]["expression"] != docs[1]["extra"]["expression"]


def test_split_rules_and_counts():
    sample = spec_of("grounding_refcoco_8611", detection=6)
    source = source_of(sample.data)
    detection, rest = split_rows(sample, source)
    assert len(detection) == 6 and len(rest) == 18 and not set(detection) & set(rest)
    image = spec_of("grounding_refcoco", detection=6)
    chosen, others = split_rows(image, source)
    name = [str(source.value(row, "file_name")).rsplit("_", 1)[0] for row in range(24)]
    assert not {name[r] for r in chosen} & {name[r] for r in others}
    assert 0 < len(others) < 18
    assert len(built(spec_of("grounding_refcoco_8611", n=18))[1]) == 18
    assert len(built(spec_of("grounding_refcoco_8811", n=24))[1]) == 24
    with pytest.raises(HarnessHeadsError, match=r"19 items are planned.*gives 18"):
        built(spec_of("grounding_refcoco_8611", n=19))


class Metadata(RowsSource):
    """RefCOCO's val split as the data sheet counts it: 8,811 objects, some images with several; no pixels."""

    def __init__(self) -> None:
        rows = [
            {
                "image": None,
                "answer": [f"object {i}"],
                "bbox": [1.0, 2.0, 30.0, 40.0],
                "file_name": f"COCO_train2014_{i // 3:012d}_{i % 3}.jpg",
            }
            for i in range(8811)
        ]
        super().__init__(rows, tuple(rows[0]), {}, "RefCOCO val")

    def picture(self, row: int, column: str) -> dict[str, Any]:
        return {"kind": "row", "row": row, "column": column, "sha": f"{row // 3}"}

    def look(self, row: int, column: str) -> None:
        """There is nothing to look at."""


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("grounding_refcoco_8611", {}, 8611),
        ("grounding_refcoco_8811", {}, 8811),
        ("grounding_refcoco", {"split_rule": "sample"}, 500),
        ("grounding_refcoco", {}, 500),
    ],
)
def test_papers_counts_come_out_of_8811_objects(name, options, count):
    """200 + 8,611 by sample, 8,811 with the detection samples, and 200 + 500 disjoint ones."""
    spec = spec_from_config(config_of(name))
    spec = replace(spec, options={**spec.options, **options})
    source = Metadata()
    items = RECIPES["grounding"].build(spec, source)
    assert spec.n == len(items) == count
    detection, rest = split_rows(spec, source)
    assert len(detection) == 200
    rows = {item.extra["row"] for item in items}
    assert len(rows) == count
    if name == "grounding_refcoco_8811":
        assert rows == set(range(8811))
        return
    assert rows <= set(rest) and not rows & set(detection)
    if spec.options["split_rule"] == "image":
        assert not {row // 3 for row in rows} & {row // 3 for row in detection}
        assert len(rest) < 8611
    else:
        assert len(rest) == 8611


def test_papers_counts_are_in_the_yamls():
    counts = {
        "grounding_refcoco_8611": (8611, 200, "sample", False),
        "grounding_refcoco_8811": (8811, 200, "sample", True),
    }
    for name, expected in counts.items():
        config = config_of(name)
        recipe = RECIPES["grounding"]
        spec = spec_from_config(config)
        got = [recipe.option(spec, o) for o in ("detection", "split_rule", "include_detection")]
        assert (spec.n, *got) == expected


def test_refspatial_boxes_are_around_the_mask():
    source, docs = built(spec_of("grounding_refspatial"))
    assert len(source) == 22  # three splits together
    for doc in docs:
        x0, y0, x1, y1 = doc["extra"]["gold"]
        assert (x1 - x0, y1 - y0, y0) == (20, 20, 8)


def test_refspatial_can_ask_for_a_point_in_the_mask():
    _, docs = built(spec_of("grounding_refspatial_points"))
    assert "point coordinates" in docs[0]["arms"]["locate"]["text"]
    for doc in docs:
        probe = probe_from_dict(doc["arms"]["locate"]["probe"])
        assert set(probe.regions) == {"mask"}
        x0, y0, x1, y1 = doc["extra"]["gold"]
        assert probe.regions["mask"].boxes == ((x0, y0, x1, y1),)  # the fixtures' masks are rectangles


@given(arrays(bool, st.tuples(st.integers(1, 8), st.integers(1, 8))))
def test_boxes_of_a_mask_cover_it_and_nothing_else(mask):
    painted = np.zeros(mask.shape, int)
    for x0, y0, x1, y1 in mask_runs(mask):
        painted[int(y0) : int(y1), int(x0) : int(x1)] += 1
    assert (painted == mask).all()


def test_toloka_boxes_are_four_columns_and_images_are_local():
    source, docs = built(spec_of("grounding_toloka"))
    for doc in docs:
        row = doc["extra"]["row"]
        assert doc["extra"]["gold"] == [float(source.value(row, c)) for c in ("left", "top", "right", "bottom")]
        assert doc["extra"]["expression"].startswith('the object that answers the question "What do we use')


def test_comic_strips_are_put_together_and_named_by_ordinals():
    source, docs = built(spec_of("ncs_strip_comics"))
    for doc in docs:
        [picture] = doc["arms"]["grid"]["pictures"]
        assert paint(picture, source).size == (6 * 256, 256)
        panel = doc["extra"]["cell"]["correct"]
        row = picture["cells"][panel]["row"]
        assert doc["options"][doc["correct"]] == source.value(row, f"caption_{panel + 1}")
        ordinal = ("first", "second", "third", "fourth", "fifth", "sixth")[panel]
        assert f"the {ordinal} panel from the left" in doc["arms"]["grid"]["text"]
