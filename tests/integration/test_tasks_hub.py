"""The first rows of every real data set (``pytest -m hub``): columns, types and files are what the YAMLs say.

Needs the network; ImageNet also needs its terms accepted and HF_TOKEN.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from harness_heads.tasks.data import DATA_ROOT, DATA_VARIABLE, open_data
from harness_heads.tasks.items import to_docs
from harness_heads.tasks.lint import read_yaml
from harness_heads.tasks.pictures import paint
from harness_heads.tasks.recipes import RECIPES
from harness_heads.tasks.spec import TaskSpec, spec_from_config

pytestmark = pytest.mark.hub
TASKS = Path(__file__).resolve().parents[2] / "tasks"
ROWS = {"ncs_imagenet": 400, "cers_imagenet": 400, "ood_cers_coco": 120}


@pytest.fixture(autouse=True)
def no_local_copy(monkeypatch):
    monkeypatch.delenv(DATA_ROOT, raising=False)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


def spec_of(name: str) -> TaskSpec:
    config = read_yaml(next(TASKS.rglob(f"{name}.yaml"))).config
    assert config is not None
    spec = spec_from_config(config)
    options = {**spec.options, **({"detection": 4} if spec.recipe == "grounding" else {})}
    return replace(spec, n=4, options=options, data=replace(spec.data, rows=ROWS.get(name, 60), get=None))


@pytest.mark.parametrize(
    "name",
    [
        "ncs_imagenet",
        "ood_cers_coco",
        "grounding_refcoco",
        "grounding_refcoco_plus",
        "grounding_refcoco_g",
        "grounding_refspatial",
        "spatial457_pointing",
        "SpatialRGPT_pointing",
        "vqa_cvbench",
        "MMStar_pointing",
        "CountBenchQA_pointing",
        "MathVista_pointing",
        "ncs_strip_comics",
    ],
)
def test_first_rows_make_items(name):
    spec = spec_of(name)
    source = open_data(spec.data, spec.task)
    recipe = RECIPES[spec.recipe]
    docs = to_docs(recipe.build(spec, source), spec, recipe.version)
    assert len(docs) == 4
    for arm in docs[0]["arms"].values():
        assert all(paint(picture, source).mode == "RGB" for picture in arm["pictures"])


def test_imagenet_rows_are_not_sorted_by_class():
    spec = spec_of("ncs_imagenet")
    source = open_data(spec.data, spec.task)
    assert len({source.value(row, "label") for row in range(400)}) > 200
    names = source.names("label")
    assert names is not None and len(names) == 1000 and names[0].startswith("tench")


def test_toloka_columns():
    spec = spec_of("grounding_toloka")
    source = open_data(spec.data, spec.task)
    for row in range(20):
        left, top, right, bottom = (int(source.value(row, c)) for c in ("left", "top", "right", "bottom"))
        assert left < right and top < bottom and str(source.value(row, "image")).startswith("http")


def test_vaw_annotations():
    url = "https://raw.githubusercontent.com/adobe-research/vaw_dataset/main/data/val.json"
    with urllib.request.urlopen(url, timeout=60) as answer:
        rows = json.load(answer)
    fields = {"image_id", "instance_bbox", "object_name", "positive_attributes", "negative_attributes"}
    assert all(fields <= set(row) and len(row["instance_bbox"]) == 4 for row in rows[:100])
