"""lint-task: every fault of a YAML is found and named; every shipped YAML is sound."""

from __future__ import annotations

import argparse
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from harness_heads.cli import lint_task, tasks_path
from harness_heads.tasks import catalogue
from harness_heads.tasks.lint import MAX_LINES, read_yaml
from harness_heads.tasks.recipes import RECIPES
from harness_heads.tasks.spec import OUR_KEYS
from harness_heads.tasks.spec_problems import spec_problems
from harness_heads.tasks.task import HeadTask

TASKS = Path(__file__).resolve().parents[2] / "tasks"
YAMLS = sorted(TASKS.rglob("*.yaml"))
SOUND = (TASKS / "digits" / "ncs_digits.yaml").read_text(encoding="utf-8")
NAMES = {
    "ncs_imagenet cers_imagenet ncs_grid_imagenet cers_imagenet_audited ncs_grid_imagenet_audited",
    "ncs_digits cers_digits ncs_grid_digits ncs_grid_digits_choose ncs_strip_digits ncs_strip_comics",
    "grounding_refcoco grounding_refcoco_plus grounding_refcoco_g grounding_toloka grounding_refspatial",
    "vqa_vaw vqa_spatial457 vqa_spatialrgpt vqa_cvbench vqa_mmstar vqa_countbenchqa vqa_mathvista",
}


ROWS_ASK = ("plain_mcq", "image_retrieval")
NAMED = 'options: {named_question: "{cell}?"}'
QUESTIONS = "columns: {image: image, answer: label, question: q}\n"


def problems(text: str, tmp_path: Path, **replaced: str) -> str:
    for old, new in replaced.items():
        text = text.replace(old, new)
    path = tmp_path / "t.yaml"
    path.write_text(text, encoding="utf-8")
    return "; ".join(read_yaml(path).problems)


@pytest.mark.parametrize("path", YAMLS, ids=lambda p: p.stem)
def test_shipped_yamls_are_sound_and_named_after_their_task(path):
    linted = read_yaml(path)
    assert linted.problems == ()
    assert linted.config is not None
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
    if not linted.is_group:
        assert linted.config["task"] == path.stem


def test_every_task_of_the_papers_is_there():
    tasks = {path.stem for path in YAMLS}
    assert {name for names in NAMES for name in names.split()} <= tasks
    for group, count in (("pointing", 14), ("ood_cers", 8), ("ood_ncs", 8), ("ood", 16), ("grounding", 5), ("vqa", 7)):
        config = catalogue.read_yaml(next(TASKS.rglob(f"{group}.yaml")))
        assert len(config["task"]) == count == len(set(config["task"]))
        assert set(config["task"]) <= tasks


def test_seeds_differ_between_tasks_that_share_data():
    seeds: dict[tuple[str, int], list[str]] = {}
    for path in YAMLS:
        linted = read_yaml(path)
        if linted.config is not None and not linted.is_group:
            key = (str(linted.config["data"]), linted.config["seed"])
            seeds.setdefault(key, []).append(path.stem)
    shared = [names for names in seeds.values() if len(names) > 1]
    # both halves of an audit, and variants of one grounding task, are meant to be the same items
    assert all(len({n.split("_")[0] for n in names}) == 1 or "audited" in names[0] for names in shared)


def test_a_sound_yaml_has_no_problem(tmp_path):
    assert problems(SOUND, tmp_path) == ""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seed:", "sed:", "unknown key 'sed'; did you mean 'seed'?"),
        ("seed:", "n: 3\nseed:", "key 'n' is written twice (first on line 7)"),
        ("n: 200", "n: many", "n: 'many' is no whole number >= 1"),
        ("n: 200", "n: true", "n: True is no whole number"),
        ("split:", "spilt:", "unknown data key 'spilt'; did you mean 'split'?"),
        (
            "mcq_matched_mismatched",
            "mcq_matched",
            "unknown recipe 'mcq_matched'; did you mean 'mcq_matched_mismatched'?",
        ),
        ("image: image, ", "", "columns.image is missing: the image"),
        ("image: image", "imgae: image", "unknown column role 'imgae'; did you mean 'image'?"),
        ("text_question:", "text_qestion:", "unknown option 'text_qestion'; did you mean 'text_question'?"),
        ("n: 200", "probe: {op: maks}\nn: 200", "unknown op 'maks'; did you mean 'mask'?"),
        ("n: 200", "probe: {bta: 1}\nn: 200", "unknown probe key 'bta'; did you mean 'beta'?"),
        ("n: 200", "bad_images: ignore\nn: 200", "bad_images: 'ignore' is neither fail nor skip"),
        ("task.HeadTask", "task.HeadTsk", "!function harness_heads.tasks.task.HeadTsk cannot be imported"),
        ("class: !function harness_heads.tasks.task.HeadTask\n", "", "key 'class' is missing"),
        ("class: !function", "class: !python/name:os.system", "could not determine a constructor"),
        ("recipe:", "\trecipe:", "tab"),
        ("columns: {", "columns: [", "line 5"),
        ("data: {path: harness-heads/digits, split: evaluate}", "data: digits", "data is a mapping"),
        ("task: ncs_digits", "task: 5", "task: 5 is no name"),
        ("task: ncs_digits", "task: a b", "task: 'a b' is no name"),
        ("question: Which digit is shown?", "question: 5", "question: 5 is no text; write it in quotes"),
        ("question: Which digit is shown?", "question: [a]", "question: ['a'] is no text"),
        ("question: Which digit is shown?\n", "", "key 'question' is missing"),
        ("question: Which digit is shown?", 'question: "{digit}?"', "question: unknown placeholder {digit}"),
        ("n: 200", "instruction: 7\nn: 200", "instruction: 7 is no text"),
        ("n: 200", "marks: 5\nn: 200", "marks: 5 is neither a text nor a list of texts"),
        ("n: 200", "marks: [1]\nn: 200", "marks: [1] is neither"),
        ("n: 200", "probe: {beta: strong}\nn: 200", "probe.beta: 'strong' is not a finite number or hard"),
        ("n: 200", "probe: {beta: .nan}\nn: 200", "probe.beta: nan is not a finite number or hard"),
        ("n: 200", "probe: {beta: 3}\nn: 200", "probe.beta does nothing under mask, only steer reads it"),
        ("n: 200", "probe: {numerics: bf16_round}\nn: 200", "probe.numerics does nothing under mask"),
        ("n: 200", "probe: {rows: 5}\nn: 200", "probe.rows: 5 is not a row group"),
        ("n: 200", "probe: {op: [mask]}\nn: 200", "probe.op: ['mask'] is not a word"),
        ("n: 200", "probe: {keep_self: 1}\nn: 200", "probe.keep_self: 1 is not yes or no"),
        ("n: 200", "probe: 5\nn: 200", "probe is a mapping, not 5"),
        ("n: 200", "metadata: 5\nn: 200", "metadata is a mapping, not 5"),
        ("n: 200", "task_alias: 5\nn: 200", "task_alias: 5 is no text"),
        ("n: 200", "generation_kwargs: {until: 5}\nn: 200", "generation_kwargs.until: 5 is neither"),
        ("n: 200", "generation_kwargs: {max_new_tokens: x}\nn: 200", "max_new_tokens: 'x' is no whole number >= 1"),
        ("n: 200", "tag: {a: b}\nn: 200", "tag: {'a': 'b'} is neither"),
        ("n: 200", "n: 1000000000", "n: 1000000000 is more than any task holds; write at most 100000"),
        ("image: image", "image: 5", "columns.image: 5 is no column's name"),
        ("recipe: mcq_matched_mismatched", "recipe: [a]", "unknown recipe ['a']"),
        ("split: evaluate", "split: 5", "data.split: 5 is no text"),
        ("split: evaluate", "rows: 0", "data.rows: 0 is no whole number >= 1"),
        ("split: evaluate", "files: [5]", "data.files: [5] is neither"),
        ("{option}", "{optin}", "options.text_question: unknown placeholder {optin}; did you mean 'option'?"),
        (" {option}", "", "options.text_question: write {option} where it belongs"),
        ("n: 200", "? [a, b]\n: 1\nn: 200", "unhashable key"),
        ("n: 200", "seen: 2026-13-45\nn: 200", "is no YAML: month must be in 1..12"),
    ],
)
def test_faults_are_named(old, new, says, tmp_path):
    assert old in SOUND
    assert says in problems(SOUND, tmp_path, **{old: new})


def test_a_recipe_that_steers_by_itself_reads_beta(tmp_path):
    config = {"task": "t", "data": {"path": "a/b"}, "recipe": "grid_2x2", "n": 4, "seed": 1, "question": "Which?"}
    config |= {"columns": {"image": "i", "label": "l"}, "options": {"named_question": "{cell}?"}}
    assert spec_problems({**config, "probe": {"beta": 3}}) == []
    assert catalogue.DEFAULT_OP["image_retrieval"] == "steer"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**12)
    | st.floats()
    | st.sampled_from(["", "a", "{b}", "mask", "hard"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["op", "beta", "rows", "path", "image", "label", "cell", "pools"]), inner)
    ),
    max_leaves=4,
)


@given(st.sampled_from(sorted(RECIPES)), st.sampled_from(OUR_KEYS), VALUES)
def test_whatever_a_key_holds_it_is_a_problem_or_sound(recipe, key, value):
    sound = {"task": "t", "data": {"path": "a/b"}, "recipe": recipe, "n": 4, "seed": 1, "columns": {}, "question": "?"}
    assert all("\n" not in problem for problem in spec_problems({**sound, key: value}))


@pytest.mark.parametrize(
    ("text", "says"), [("", "is empty"), ("- a\n- b\n", "is a list"), ("just words\n", "is a str")]
)
def test_files_that_would_break_every_task(text, says, tmp_path):
    assert says in problems(text, tmp_path)


def test_a_file_of_many_lines_is_too_long(tmp_path):
    assert "a task fits in 25" in problems(SOUND + "# more\n" * 30, tmp_path)


@pytest.mark.parametrize(
    ("recipe", "lines", "says"),
    [
        ("grid_2x2", "", "options.named_question is missing"),
        ("grid_2x2", 'probe: {op: ablate}\noptions: {named_question: "{cell}?"}', "ablation knows no cells"),
        ("grid_2x2", 'probe: {op: mask}\noptions: {named_question: "{cell}?"}', "leave question out"),
        ("grid_2x2", 'options: {named_question: "{cell}?", fit: stretch}', "unknown value 'stretch'"),
        ("grid_2x2", 'options: {named_question: "{cell}?", cell: big}', "'big' is no whole number"),
        ("grid_2x2", 'options: {named_question: "{cell}?", audited: true}', "True is no whole number"),
        ("grid_2x2", 'options: {named_question: "{cell}?", audited: 5}', "5 items cannot be kept of n: 4"),
        ("grid_2x2", 'options: {named_question: "{cell}?", outside: 3}', "unknown value 3"),
        ("strip", 'options: {named_question: "{cell}?", synonyms: 1}', "unknown option 'synonyms'"),
        ("plain_mcq", "probe: {op: steer}", "no cells to steer to"),
        ("strip", 'columns: {image: i}\noptions: {named_question: "{cell}?"}', "a strip needs image and label"),
        (
            "strip",
            'columns: {panels: p, captions: "c{i}"}\noptions: {named_question: "{cell}?"}',
            "columns.panels: write {i}",
        ),
        ("strip", 'options: {named_question: "{cell}?", width: 5}', "options.width: 5 is too small; write 28 or more"),
        ("grid_2x2", 'options: {named_question: "{cell}?", cell: 0}', "options.cell: 0 is too small"),
        ("grid_2x2", 'options: {named_question: "{cell}?", gap: -1}', "options.gap: -1 is too small"),
        ("grid_2x2", 'options: {named_question: "{cell}?", outside: true}', "unknown value True"),
        ("grid_2x2", 'options: {named_question: "{sell} {cell}?"}', "placeholder {sell}; did you mean 'cell'?"),
        ("grid_2x2", 'options: {named_question: "{cell} {question}?"}', "unknown placeholder {question}"),
        ("plain_mcq", "", "columns.question is missing: reader 'columns' reads it"),
        ("plain_mcq", "options: {reader: vaw}", "columns.object is missing: reader 'vaw' reads it"),
        ("plain_mcq", f"{QUESTIONS}options: {{keep: [a]}}", "columns.group is missing: options.keep reads it"),
        ("plain_mcq", f"{QUESTIONS}options: {{pools: [5]}}", "pool 0 is 5; write a list of answers"),
        ("plain_mcq", f"{QUESTIONS}options: {{fill: [[a]]}}", "options.fill: ['a'] is no answer"),
        ("plain_mcq", f"{QUESTIONS}options: {{ask: generate}}\nprobe: {{op: mask}}", "sends none; leave probe out"),
        (
            "image_retrieval",
            f'{QUESTIONS}options: {{named_question: "{{cell}}?"}}',
            "write {question} where it belongs",
        ),
        (
            "grid_2x2",
            'probe: {keep_self: true}\noptions: {named_question: "{cell}?"}',
            "keep_self does nothing under steer",
        ),
        (
            "grid_2x2",
            'probe: {beta: strong}\noptions: {named_question: "{cell}?"}',
            "'strong' is not a finite number or",
        ),
    ],
)
def test_rules_over_several_keys(recipe, lines, says, tmp_path):
    columns = "" if "columns" in lines else "columns: {image: image, label: label}\n"
    if recipe in ROWS_ASK and columns:
        columns = "columns: {image: image, answer: label}\n"
    asked = '"{question}"' if recipe in ROWS_ASK else "Which?"
    text = (
        "task: t\nclass: !function harness_heads.tasks.task.HeadTask\ndata: {path: harness-heads/digits}\n"
        f"recipe: {recipe}\nquestion: {asked}\nn: 4\nseed: 1\n{columns}{lines}\n"
    )
    assert says in problems(text, tmp_path)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    lint_task.add_parser(subparsers)
    tasks_path.add_parser(subparsers)
    arguments = parser.parse_args(words)
    status: int = arguments.run(arguments)
    return status


def test_command_draws_a_contact_sheet(tmp_path, capsys):
    assert run("lint-task", str(TASKS / "digits" / "cers_digits.yaml"), "--output", str(tmp_path), "--items", "2") == 0
    assert "sound, 100 items" in capsys.readouterr().out
    sheet = Image.open(tmp_path / "cers_digits.png").convert("RGB")
    colours = {colour for _, colour in sheet.getcolors(1 << 24) or []}
    assert {(10, 143, 60), (217, 72, 15)} <= colours  # both regions are framed
    assert sheet.width > 700 and sheet.height > 500


def test_command_fails_on_faults_and_missing_data(tmp_path, capsys):
    bad = tmp_path / "bad.yaml"
    bad.write_text(SOUND.replace("seed:", "sed:"), encoding="utf-8")
    assert run("lint-task", str(bad)) == 1
    assert "did you mean 'seed'" in capsys.readouterr().out
    bad.write_text(SOUND.replace("split: evaluate", "split: evaluat"), encoding="utf-8")
    assert run("lint-task", str(bad), "--output", str(tmp_path)) == 1
    assert "unknown split 'evaluat'" in capsys.readouterr().out
    bad.write_text(SOUND.replace("label: label", "label: lable"), encoding="utf-8")
    assert run("lint-task", str(bad), "--output", str(tmp_path)) == 1
    assert "no column 'lable'; did you mean 'label'" in capsys.readouterr().out
    assert run("lint-task", str(bad), "--no-data") == 0


def test_command_checks_the_members_of_groups(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(SOUND.replace("task: ncs_digits", "task: mine"), encoding="utf-8")
    (tmp_path / "g.yaml").write_text("group: g\ntask: [mine, minn]\n", encoding="utf-8")
    assert run("lint-task", str(tmp_path), "--no-data") == 1
    assert "unknown task 'minn'; did you mean 'mine'" in capsys.readouterr().out


def test_command_names_what_two_files_call_the_same(tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(SOUND, encoding="utf-8")
    assert run("lint-task", str(tmp_path), "--no-data") == 1
    assert "b.yaml: 'ncs_digits' is the name of" in capsys.readouterr().out


def test_command_names_groups_that_are_none(tmp_path, capsys):
    for text, says in (
        ("group: 5\ntask: [a]\n", "group: 5 is no name"),
        ("group: g\ntask: 5\n", "lists the names"),
        ("group: g\ntask: [5]\n", "lists the names"),
    ):
        (tmp_path / "g.yaml").write_text(text, encoding="utf-8")
        assert run("lint-task", str(tmp_path / "g.yaml")) == 1
        assert says in capsys.readouterr().out


def test_command_ends_at_once_where_a_plan_lies_far_beyond_the_data(tmp_path, capsys):
    bad = tmp_path / "bad.yaml"
    bad.write_text(SOUND.replace("n: 200", "n: 99999"), encoding="utf-8")
    assert run("lint-task", str(bad), "--output", str(tmp_path)) == 1
    assert "99999 items are planned" in capsys.readouterr().out


def test_command_names_what_lmms_eval_refuses(tmp_path, capsys, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("metric_list is\nmissing")

    monkeypatch.setattr(HeadTask, "__init__", refuse)
    (tmp_path / "t.yaml").write_text(SOUND, encoding="utf-8")
    assert run("lint-task", str(tmp_path / "t.yaml"), "--output", str(tmp_path)) == 1
    assert "lmms-eval refuses it (AssertionError: metric_list is missing)" in capsys.readouterr().out


def test_command_names_a_picture_that_cannot_be_drawn_and_goes_on(tmp_path, capsys, monkeypatch):
    whole = BytesIO()
    Image.effect_noise((160, 120), 90).save(whole, "JPEG")
    for name in "abcdef":
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "pets" / name / "1.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    monkeypatch.chdir(tmp_path)
    data = "data: {path: harness-heads/digits, split: evaluate}"
    Path("a.yaml").write_text(SOUND.replace(data, "data: {path: ./pets}").replace("n: 200", "n: 4"), encoding="utf-8")
    assert run("lint-task", "a.yaml", str(TASKS / "digits" / "ncs_digits.yaml"), "--items", "1") == 1
    printed = capsys.readouterr().out
    assert "1.jpg), column 'image': this is no readable image" in printed
    assert "ncs_digits.yaml: sound" in printed


def test_tasks_path_is_the_folder_of_the_yamls(capsys):
    assert run("tasks-path") == 0
    assert Path(capsys.readouterr().out.strip()) == TASKS


def test_every_recipe_option_has_a_default_that_fits_it():
    for recipe in RECIPES.values():
        for name, option in recipe.options.items():
            assert option.problems(name, option.default) == []
            assert option.help
