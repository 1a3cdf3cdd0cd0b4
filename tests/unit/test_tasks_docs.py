"""The pages about tasks: "a benchmark of your own" is done to the letter, and nothing is missing from tasks.md."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness_heads.tasks.lint import lint
from harness_heads.tasks.recipes import RECIPES
from harness_heads.tasks.sources import DigitsSource

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your-own-benchmark.md").read_text(encoding="utf-8")
COMMANDS = {"harness-heads": "harness_heads.cli.main", "lmms_eval": "harness_heads.cli.launch"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """The folder that the page asks for: one folder per class, images numbered anew in each of them."""
    source = DigitsSource("choose")
    for row in range(80):
        word = (source.names("label") or ())[source.cell(row, "label")]
        folder = tmp_path / "pets" / word
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{len(list(folder.iterdir())) + 1}.png"
        source.image(row, "image").save(target)
    return tmp_path


def test_the_page_works_to_the_letter(images):
    [text] = blocks("yaml")
    assert len(text.splitlines()) <= 25
    (images / "my_pets.yaml").write_text(text, encoding="utf-8")
    lint, run = blocks("sh")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    for command in (lint, run):
        program, *words = shlex.split(command)
        done = subprocess.run(
            [sys.executable, "-m", COMMANDS[program], *words],
            cwd=images,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert (images / "sheets" / "my_pets.png").exists()
    assert (images / "my_run" / "report" / "report.html").exists()
    assert "16 of 16 items" in done.stdout
    assert re.search(r"tiny-digits/dg-ref-qsp: ncs\s", done.stdout)
    [accuracy] = re.findall(r"\|acc_matched\s*\|[^|]*\|\s*([\d.]+)", done.stdout)
    assert float(accuracy) > 0.9  # the model knows its digits: every item shows the image of its own class


@pytest.mark.parametrize("op", ["steer", "mask"])
def test_other_shapes_of_the_same_data_are_sound(op, images, monkeypatch):
    """The sentence on CERS and NCS on the grid, done: the page's own words become the YAML."""
    said = re.search(r"`(probe: \{op: steer.*?\})` and\n`(options: .*?\})`", PAGE)
    assert said is not None and "`probe: {op: mask}` and no `question`" in PAGE
    [text] = blocks("yaml")
    kept = [line for line in text.splitlines() if not line.startswith(("recipe:", "options:", "question:"))]
    asked = ["question: Which digit is shown?", said[1]] if op == "steer" else ["probe: {op: mask}"]
    path = images / "shape.yaml"
    path.write_text("\n".join([*kept, "recipe: grid_2x2", *asked, said[2]]), encoding="utf-8")
    monkeypatch.chdir(images)
    linted, task = lint(path)
    assert linted.problems == () and len(task.dataset["all"]) == 16
    docs = list(task.dataset["all"])
    assert docs[0]["arms"]["grid"]["probe"]["conditions"][0]["op"] == op


def test_every_task_recipe_and_option_is_on_the_page():
    page = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    for recipe in RECIPES.values():
        assert f"`{recipe.name}`" in page
        for option in recipe.options:
            assert f"`{option}`" in page, (recipe.name, option)
        assert all(re.search(rf"\b{role}\b", page) for role in recipe.columns)
    groups = ("pointing", "ood", "ood_cers", "ood_ncs", "vqa", "grounding")
    assert all(f"`{group}`" in page for group in groups)
    for path in (ROOT / "tasks").rglob("*.yaml"):
        name = path.stem
        shown = (
            f"`{name}`",
            f"`_{name.split('_', 1)[-1]}`",
            f"`{name.split('_')[0]}_*",
            f"`{'_'.join(name.split('_')[:2])}_*",
        )
        assert any(form in page for form in shown) or name.endswith("_masked"), name
