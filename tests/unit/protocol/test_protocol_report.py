"""The report: self-contained, escaped, equal for equal evidence, whole or absent."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry
from harness_heads.protocol import report as module
from harness_heads.protocol.analysis import analyse
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.plan import Claim, Plan
from harness_heads.protocol.report import compose, read_report, render, write_report

WORLD = syn.World(items=12, controls=5, damage=True, rows=(("all",), ("question",)), betas=(1.0, "hard"))
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Checks that every tag closes and collects ids, links, text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.scripts = 0
        self.labelled = self.svgs = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID:
            self.stack.append(tag)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        for name in ("href", "src"):
            target = values.get(name)
            if target and target.startswith("#"):
                self.links.append(target[1:])
            elif target and not target.startswith("data:"):
                self.outside.append(target)
        self.scripts += tag == "script"
        self.svgs += tag == "svg"
        self.labelled += tag == "svg" and bool(values.get("aria-label"))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1] == tag, f"</{tag}> closes {self.stack[-3:]}"
        self.stack.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    return [
        syn.write_ncs(root / "ncs", WORLD),
        syn.write_cers(root / "cers", WORLD),
        syn.write_grid_ncs(root / "g", WORLD),
    ]


@pytest.fixture(scope="module")
def texts(folders: list[Path]) -> tuple[str, str, str]:
    return render(analyse(load_evidence(folders), 60))


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.stack == []
    return reader


def test_html_is_well_formed_and_needs_nothing_else(texts: tuple[str, str, str]) -> None:
    reader = read(texts[0])
    assert reader.outside == []
    assert reader.scripts == 1
    assert "@import" not in texts[0] and "url(" not in texts[0]
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.links) <= set(reader.ids)


def test_every_figure_has_a_text_alternative(texts: tuple[str, str, str]) -> None:
    reader = read(texts[0])
    assert reader.svgs == reader.labelled > 10


def test_class_names_do_no_harm(texts: tuple[str, str, str]) -> None:
    html, markdown, _ = texts
    assert "<script>alert" not in html and "<script>alert" not in markdown
    assert "&lt;script&gt;alert(1)" in html
    assert "a \\| b" in markdown
    for block in re.findall(r"(?:^\|.*\n)+", markdown, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
        assert len(widths) == 1, block


def test_markdown_tables_follow_their_headings(texts: tuple[str, str, str]) -> None:
    lines = texts[1].splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("|-")]
    assert len(starts) > 8
    assert all(lines[i - 2] == "" for i in starts)


def test_json_is_strict_and_keeps_its_schema(texts: tuple[str, str, str]) -> None:
    value = json.loads(texts[2], parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    schema = json.loads((Path(module.__file__).parent / "report.schema.json").read_text(encoding="utf-8"))
    check(value, schema, schema, "report")


def check(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str) -> None:
    """The part of JSON Schema that the published schema uses."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].split("/")[-1]]
    kinds = schema.get("type")
    if kinds is not None:
        names = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
        kinds = [kinds] if isinstance(kinds, str) else kinds
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = any(
            (number and (kind == "number" or (kind == "integer" and isinstance(value, int))))
            if kind in ("number", "integer")
            else isinstance(value, names[kind])
            for kind in kinds
        )
        assert fits, f"{where}: {value!r} is no {kinds}"
    if "enum" in schema:
        assert value in schema["enum"], where
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            assert name in value, f"{where} lacks {name}"
        for name, part in value.items():
            if name in known:
                check(part, known[name], root, f"{where}.{name}")
            elif schema.get("additionalProperties") is False:
                pytest.fail(f"{where} has {name}")
            elif isinstance(schema.get("additionalProperties"), dict):
                check(part, schema["additionalProperties"], root, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for i, part in enumerate(value):
            check(part, schema["items"], root, f"{where}[{i}]")


def test_the_schema_refuses_what_it_does_not_know(texts: tuple[str, str, str]) -> None:
    schema = json.loads((Path(module.__file__).parent / "report.schema.json").read_text(encoding="utf-8"))
    value = json.loads(texts[2])
    value["tests"][0]["mean"] = "0.4"
    with pytest.raises(AssertionError, match=r"tests\[0\].mean"):
        check(value, schema, schema, "report")


def test_equal_evidence_equal_bytes(folders: list[Path], tmp_path: Path) -> None:
    one = write_report(load_evidence(folders), tmp_path / "one", 60)
    two = write_report(load_evidence(folders[::-1]), tmp_path / "two", 60)
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_ranks_line_order_and_folder_order_change_no_byte(tmp_path: Path) -> None:
    world = replace(WORLD, controls=2, rows=(("all",),), betas=("hard",), damage=False)
    orders = {"one": (1, None), "two": (2, [*range(0, 12, 2), *range(1, 12, 2)]), "three": (3, list(range(11, -1, -1)))}
    made = []
    for name, (ranks, order) in orders.items():
        here = replace(world, ranks=ranks)
        folders = [syn.write_ncs(tmp_path / name / "a", here, order=order), syn.write_cers(tmp_path / name / "b", here)]
        made.append(render(analyse(load_evidence(folders if ranks == 1 else folders[::-1]), 60)))
    assert made[0] == made[1] == made[2]


def test_evidence_comes_back_from_the_json(folders: list[Path], tmp_path: Path) -> None:
    evidence = load_evidence(folders)
    paths = write_report(evidence, tmp_path / "one", 60)
    back = read_report(paths.json)
    assert back.digest == evidence.digest
    again = write_report(back, tmp_path / "two", 60)
    assert again.json.read_bytes() == paths.json.read_bytes()
    assert again.html.read_bytes() == paths.html.read_bytes()


def test_a_report_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(HarnessHeadsError, match="no report of schema"):
        read_report(tmp_path / "x.json")


def test_exploratory_is_the_first_line(texts: tuple[str, str, str]) -> None:
    assert texts[1].startswith("EXPLORATORY: ")
    first = re.sub(r"<[^>]+>", "", texts[0][texts[0].index("<body>") :]).strip()
    assert first.startswith("EXPLORATORY: ")


def test_a_planned_run_opens_with_its_claims(tmp_path: Path) -> None:
    plan = Plan(claims=(Claim("necessity", "dg-ref-qsp", "ncs_digits"),), r=39)
    world = replace(WORLD, controls=39, rows=(("all",),), plan=plan.digest)
    folder = syn.write_ncs(tmp_path, world, run_json={"plan": plan.to_dict()})
    report = compose(analyse(load_evidence([folder]), 60))
    assert report.status.startswith("Planned: 1 claim fixed before the run")
    assert report.verdicts[0].carried, report.verdicts[0].reasons


def test_the_embedded_model_is_named_a_demonstration(texts: tuple[str, str, str]) -> None:
    assert "demonstration model, chosen" in texts[0] and "demonstration model, chosen" in texts[1]


def test_counts_stand_at_the_top(texts: tuple[str, str, str]) -> None:
    value = json.loads(texts[2])
    n = value["checklist"]["counts"]
    line = f"Checklist: {n['reported']} reported, {n['not applicable']} not applicable, {n['MISSING']} MISSING"
    assert line in texts[1].split("\n## ")[1]


def test_rounding_is_in_presentation_alone(texts: tuple[str, str, str]) -> None:
    value = json.loads(texts[2])
    test = value["tests"][0]
    assert test["mean"] != round(test["mean"], 6)
    cell = next(c for row in value["tables"]["main-ncs"]["rows"] for c in row if c["values"][:1] == [test["mean"]])
    assert cell["text"].startswith(f"{test['mean']:.3f} [")


def test_what_is_not_estimable_says_why(tmp_path: Path) -> None:
    folder = syn.write_ncs(tmp_path, replace(WORLD, controls=0, items=1, damage=False))
    html, markdown, text = render(analyse(load_evidence([folder]), 60))
    assert "not estimable (no control sets)" in markdown
    assert "not estimable: one item" in markdown
    assert not re.search(r"(?<![\w-])nan(?![\w-])", re.sub(r'data-\w+="[^"]*"', "", html.split("<script>")[0]))
    test = json.loads(text)["tests"][0]
    assert (test["p_upper"], test["low"], test["z"]) == (None, None, None)
    assert test["reasons"]["p_upper"] == "no control sets"


def test_zero_prints_as_zero(tmp_path: Path) -> None:
    from harness_heads.protocol.formats import number

    assert [number(v) for v in (0.0, -0.0, -0.0001, math.nan)] == ["0.000", "0.000", "0.000", "not estimable"]


def test_a_stock_run_makes_a_report(tmp_path: Path) -> None:
    folder = syn.write_stock(tmp_path, WORLD)
    _, markdown, _ = render(analyse(load_evidence([folder]), 60))
    assert markdown.startswith("No intervention")
    assert "no intervention" in markdown.split("### Answers in words")[1]


def test_a_folder_that_cannot_be_written(folders: list[Path], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("here")
    with pytest.raises(HarnessHeadsError, match="cannot be written") as caught:
        write_report(load_evidence(folders[:1]), blocked / "report", 60)
    assert "\n" not in str(caught.value)
    assert blocked.read_text() == "here"


def test_nothing_half_written(folders: list[Path], tmp_path: Path) -> None:
    """The last file fails: the first two are not left behind either."""
    (tmp_path / "out" / "report.json.part").mkdir(parents=True)
    with pytest.raises(HarnessHeadsError, match="cannot be written"):
        write_report(load_evidence(folders[:1]), tmp_path / "out", 60)
    assert not [p.name for p in (tmp_path / "out").iterdir() if p.is_file()]


def test_ascii_locale(folders: list[Path], tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    code = (
        "import argparse, sys; from harness_heads.cli import report, check\n"
        "p = argparse.ArgumentParser(); s = p.add_subparsers(); report.add_parser(s); check.add_parser(s)\n"
        "a = p.parse_args(sys.argv[1:]); sys.exit(a.run(a))"
    )
    for command in (["report", str(folders[0]), "-o", str(tmp_path)], ["check", str(folders[0])]):
        done = subprocess.run([sys.executable, "-c", code, *command], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    assert "±" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_one_of_a_thing_is_singular(tmp_path: Path) -> None:
    """One layer, one head, one control, one claim: nowhere "1 layers"."""
    plan = Plan(claims=(Claim("necessity", "a", "ncs_digits"),), r=1)
    world = syn.World(items=6, controls=1, k=1, geometry=Geometry((4, 0)), effects={"a": 0.2}, facts=False)
    world = replace(world, plan=plan.digest)
    evidence = load_evidence([syn.write_ncs(tmp_path, world, run_json={"plan": plan.to_dict()})])
    report = compose(analyse(evidence, 20))
    texts = [report.status, *(s.text for s in report.sentences), *(i.text for i in report.checklist)]
    texts += [f.text for f in report.findings] + [figure.alt for figure in report.figures]
    assert "in 1 layer" in " ".join(texts) and "1 layer control," in " ".join(texts)
    plural = re.compile(r"(?<![\d.,])1 (layer controls|layers|heads|controls|claims|tests|items|images|pairs)\b")
    assert [t for t in texts if plural.search(t) and not re.search(r"of 1 layers", t)] == []
