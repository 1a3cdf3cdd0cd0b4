"""The numbers in a report's HTML, Markdown and JSON, recomputed from samples.jsonl with json and plain floats alone.

Nothing of the package is imported, not even NumPy: formulas are written out a second time. To hold a real report to its
run, name both: ``REPORT_RUN=reports/runs/x REPORT_DIR=reports/runs/x/report pytest tests/unit/test_report_numbers.py``
(several run folders are separated by the path separator).
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest

SYNTHETIC = Path(__file__).parent / "protocol"
CLOSE = 1e-9
MAKE = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import synthetic as syn
from harness_heads.protocol.evidence import load_evidence
from harness_heads.protocol.report import write_report
root = Path(sys.argv[2])
world = syn.World(items=18, controls=7, clusters=9, families=("layer", "any"), betas=(1.0, "hard"))
world = replace(world, rows=(("all",), ("last",)))
writers = {"ncs": syn.write_ncs, "cers": syn.write_cers, "grid": syn.write_grid_ncs}
folders = [write(root / name, world) for name, write in writers.items()]
write_report(load_evidence(folders), root / "report", 80)
"""

Values = dict[str, list[float]]
"""Item scores by set key, items sorted by id."""


class Run:
    """One samples file, read with json alone."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        unique = {line["record"]["item"]: line["record"] for line in lines}
        self.records = [unique[item] for item in sorted(unique)]
        self.task = self.records[0]["task"]
        self.letters = self.records[0]["letters"]
        runs = [a["run"] for r in self.records for a in r["arms"].values() if a and a.get("run")]
        self.sets = runs[0]["sets"]
        self.empty = next(s["key"] for s in self.sets if s["role"] == "empty")
        self.tested = [s for s in self.sets if s["role"] in ("discovered", "subset")]

    def controls(self, key: str, family: str) -> list[str]:
        rows = [s for s in self.sets if s["role"] == "control" and s["parent"] == key and s["family"] == family]
        return [s["key"] for s in sorted(rows, key=lambda s: s["draw"])]

    def right(self, record: dict[str, Any], arm: str) -> str:
        index = record["extra"].get("correct", {}).get(arm, record["correct"])
        return str(self.letters[index])

    def p(self, record: dict[str, Any], arm: str, condition: str, key: str, letter: str, renorm: bool = False) -> float:
        cell = record["arms"][arm]["logprobs"][condition][key]
        p = math.exp(cell[letter])
        return p / math.fsum(math.exp(v) for v in cell.values()) if renorm else p

    def conditions(self, arm: str) -> list[str]:
        answer = self.records[0]["arms"].get(arm)
        return sorted(answer["logprobs"]) if answer else []

    def keys(self) -> list[str]:
        return [s["key"] for s in self.sets if s["role"] != "empty"]

    def scores(self) -> Iterator[tuple[str, str, Values]]:
        """Score, condition and item values of everything that the task determines."""
        for condition in self.conditions("matched"):
            if condition.split(":")[:2] == ["mask", "image"] and condition in self.conditions("mismatched"):
                yield from self._necessity(condition)
        for arm in sorted(self.records[0]["arms"]):
            for condition in self.conditions(arm):
                op, keys, *rest = [*condition.split(":"), ""][:2] + condition.split(":")[2:]
                other = ":".join([op, "distractor", *rest])
                if keys == "correct" and op == "steer":
                    yield from self._contrast(arm, condition, other, ":".join(["steer", *rest]))
                elif keys == "correct" and op == "mask":
                    yield "ncs_grid", ":".join(["mask:cell", *rest]), self._differences(arm, other, condition)

    def _necessity(self, condition: str) -> Iterator[tuple[str, str, Values]]:
        for renorm, end in ((False, ""), (True, "_renorm")):
            drops = {arm: self._drops(arm, condition, renorm) for arm in ("matched", "mismatched")}
            yield f"drop_matched{end}", condition, drops["matched"]
            yield f"drop_mismatched{end}", condition, drops["mismatched"]
            ncs = {
                k: [a - b for a, b in zip(drops["matched"][k], drops["mismatched"][k], strict=True)]
                for k in self.keys()
            }
            yield f"ncs{end}", condition, ncs
        if condition in self.conditions("text"):
            text = self._drops("text", condition, False)
            match = self._drops("matched", condition, False)
            yield "ncs_v2", condition, {k: [a - b for a, b in zip(match[k], text[k], strict=True)] for k in self.keys()}

    def _drops(self, arm: str, condition: str, renorm: bool) -> Values:
        out: Values = {}
        for key in self.keys():
            out[key] = []
            for r in self.records:
                letter = self.right(r, arm)
                base = self.p(r, arm, condition, self.empty, letter, renorm)
                out[key].append(base - self.p(r, arm, condition, key, letter, renorm))
        return out

    def _differences(self, arm: str, high: str, low: str, renorm: bool = False) -> Values:
        return {
            key: [
                self.p(r, arm, high, key, self.right(r, arm), renorm)
                - self.p(r, arm, low, key, self.right(r, arm), renorm)
                for r in self.records
            ]
            for key in self.keys()
        }

    def _contrast(self, arm: str, to_c: str, to_d: str, name: str) -> Iterator[tuple[str, str, Values]]:
        for renorm, end in ((False, ""), (True, "_renorm")):
            forward = self._differences(arm, to_c, to_d, renorm)
            yield f"cers{end}", name, forward
            symmetric: Values = {}
            for key in self.keys():
                symmetric[key] = []
                for r, value in zip(self.records, forward[key], strict=True):
                    d = self.letters[r["extra"]["distractor_option"]]
                    back = self.p(r, arm, to_d, key, d, renorm) - self.p(r, arm, to_c, key, d, renorm)
                    symmetric[key].append((value + back) / 2)
            yield f"cers_symmetric{end}", name, symmetric


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def sd(values: list[float]) -> float:
    m = mean(values)
    return math.sqrt(math.fsum((v - m) ** 2 for v in values) / (len(values) - 1))


def t_tail(t: float, df: int) -> float:
    """P(T > t) for t >= 0 by Simpson's rule on the density, after t = sqrt(df) tan(u)."""
    constant = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    start, stop, steps = math.atan(t / math.sqrt(df)), math.pi / 2, 4000
    h = (stop - start) / steps
    total = math.fsum(
        (1 if i in (0, steps) else 4 if i % 2 else 2) * max(0.0, math.cos(start + i * h)) ** (df - 1)
        for i in range(steps + 1)
    )
    return constant * total * h / 3


@lru_cache
def t_quantile(upper: float, df: int) -> float:
    low, high = 0.0, 20_000.0
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > upper else (low, middle)
    return low


def item_interval(values: list[float], clusters: list[str]) -> tuple[float, float]:
    """Cluster-robust t interval: residuals summed within images."""
    m, n = mean(values), len(values)
    sums: dict[str, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - m
    c = len(sums)
    se = math.sqrt(c / (c - 1) * math.fsum(v * v for v in sums.values())) / n
    half = t_quantile(0.025, c - 1) * se
    return m - half, m + half


def rank(value: float, controls: list[float]) -> float:
    return (1 + sum(c >= value - 1e-6 for c in controls)) / (len(controls) + 1)


def holm(p: list[float], m: int) -> list[float]:
    out, running = [0.0] * len(p), 0.0
    for place, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (m - place) * p[index]))
        out[index] = running
    return out


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Run], Path]:
    """Runs and report folder: the named ones, or a synthetic run reported in a process of its own."""
    if os.environ.get("REPORT_RUN"):
        folders = [Path(p) for p in os.environ["REPORT_RUN"].split(os.pathsep)]
        files = sorted({f for folder in folders for f in folder.rglob("*_samples_*.jsonl")})
        return [Run(f) for f in files], Path(os.environ["REPORT_DIR"])
    root = tmp_path_factory.mktemp("numbers")
    subprocess.run([sys.executable, "-c", MAKE, str(SYNTHETIC), str(root)], check=True, capture_output=True)
    return [Run(f) for f in sorted(root.rglob("*_samples_*.jsonl"))], root / "report"


@pytest.fixture(scope="module")
def value(report: tuple[list[Run], Path]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((report[1] / "report.json").read_text(encoding="utf-8"))
    return loaded


def effects(value: dict[str, Any]) -> dict[tuple[str, str, str, str, str], dict[str, Any]]:
    return {
        (e["task"], e["score"], e["condition"], e["key"], e["family"]): e
        for task in value["tasks"]
        for e in task["effects"]
    }


def test_every_effect_of_the_json(report: tuple[list[Run], Path], value: dict[str, Any]) -> None:
    found = effects(value)
    checked = 0
    for run in report[0]:
        clusters = [r["cluster"] for r in run.records]
        for score, condition, values in run.scores():
            for entry in run.tested:
                families = sorted(
                    {s["family"] for s in run.sets if s["role"] == "control" and s["parent"] == entry["key"]}
                )
                for family in families:
                    e = found[(run.task, score, condition, entry["key"], family)]
                    own = values[entry["key"]]
                    controls = [mean(values[k]) for k in run.controls(entry["key"], family)]
                    low, high = item_interval(own, clusters)
                    expected = {
                        "mean": mean(own), "sd": sd(own), "low": low, "high": high, "control_mean": mean(controls),
                        "control_sd": sd(controls), "p_upper": rank(mean(own), controls),
                        "floor": 1 / (len(controls) + 1),
                    }  # fmt: skip
                    for name, number in expected.items():
                        assert e[name] == pytest.approx(number, abs=1e-7), (score, condition, name)
                    assert e["controls"] == pytest.approx(controls, abs=CLOSE)
                    if sd(controls) > 1e-12:
                        assert e["z"] == pytest.approx((mean(own) - mean(controls)) / sd(controls), rel=1e-6)
                    assert (e["n"], e["clusters"], e["k"]) == (len(own), len(set(clusters)), len(entry["heads"]))
                    checked += 1
    assert checked > 0


def test_adjusted_p_of_an_exploratory_report(report: tuple[list[Run], Path], value: dict[str, Any]) -> None:
    exploratory = [t for t in value["tests"] if not t["confirmatory"]]
    for family in {t["family"] for t in exploratory}:
        every = [t for t in value["tests"] if t["family"] == family]
        group = [t for t in every if not t["confirmatory"]]
        assert {t["m"] for t in group} == {len(every)}
        assert [t["holm"] for t in group] == pytest.approx(holm([t["p"] for t in group], len(every)))


def test_arms_and_audits_of_the_json(report: tuple[list[Run], Path], value: dict[str, Any]) -> None:
    tasks = {t["task"]: t for t in value["tasks"]}
    for run in report[0]:
        levels = {a["arm"]: a for a in tasks[run.task]["arms"]}
        for arm, level in levels.items():
            condition = run.conditions(arm)[0]
            letters = [run.right(r, arm) for r in run.records]
            rows = list(zip(run.records, letters, strict=True))
            assert level["p"] == pytest.approx(
                mean([run.p(r, arm, condition, run.empty, c) for r, c in rows]), abs=CLOSE
            )
            renorm = mean([run.p(r, arm, condition, run.empty, c, True) for r, c in rows])
            assert level["p_renorm"] == pytest.approx(renorm, abs=CLOSE)
            best = []
            for r, c in rows:
                cell = r["arms"][arm]["logprobs"][condition][run.empty]
                top = max(cell.values())
                best.append(float(next(k for k in run.letters if cell[k] == top) == c))
            assert level["accuracy"] == pytest.approx(mean(best), abs=CLOSE)
        if "matched" in levels and "mismatched" in levels:
            assert tasks[run.task]["headroom"] == pytest.approx(levels["matched"]["p"] - levels["mismatched"]["p"])
        for audit in tasks[run.task]["audits"]:
            assert audit["passed"] == (audit["low"] <= levels[audit["arm"]]["p"] <= audit["high"])


def html_tables(text: str) -> dict[str, list[list[str]]]:
    out = {}
    for name, body in re.findall(r'data-table="([^"]+)">(.*?)</table>', text, re.S):
        rows = re.findall(r"<tr>(.*?)</tr>", body.split("<tbody>")[1], re.S)
        out[name] = [
            [unescape(re.sub(r"<[^>]+>", "", c)) for c in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)] for row in rows
        ]
    return out


def markdown_tables(text: str) -> dict[str, list[list[str]]]:
    out = {}
    for part in text.split("\n### ")[1:]:
        title, _, rest = part.partition("\n")
        lines = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("|")]
        out[title] = [[unescape(c.strip()) for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]
    return out


def expected_main(report: tuple[list[Run], Path]) -> dict[str, dict[tuple[str, str], list[str]]]:
    """Main tables by score: set and place -> text of score, controls, rank p and floor."""
    out: dict[str, dict[tuple[str, str], list[str]]] = {}
    for run in report[0]:
        clusters = [r["cluster"] for r in run.records]
        for score, condition, values in run.scores():
            if score not in ("ncs", "cers", "ncs_grid"):
                continue
            for entry in run.tested:
                families = {s["family"] for s in run.sets if s["role"] == "control" and s["parent"] == entry["key"]}
                if not families:
                    continue
                family = "layer" if "layer" in families else sorted(families)[0]
                own = values[entry["key"]]
                controls = [mean(values[k]) for k in run.controls(entry["key"], family)]
                low, high = item_interval(own, clusters)
                out.setdefault(score, {})[(entry["name"], f"{run.task}, {condition}")] = [
                    f"{shown(mean(own))} [{shown(low)}, {shown(high)}]",
                    f"{shown(mean(controls))} ± {shown(sd(controls))}",
                    f"{rank(mean(own), controls):.3f}",
                    f"{1 / (len(controls) + 1):.3f}",
                ]
    return out


def shown(number: float) -> str:
    text = f"{number:.3f}"
    return "0.000" if float(text) == 0 else text


def test_numbers_of_the_html(report: tuple[list[Run], Path]) -> None:
    tables = html_tables((report[1] / "report.html").read_text(encoding="utf-8"))
    for score, rows in expected_main(report).items():
        printed = {(row[0], row[1]): row[2:6] for row in tables[f"main-{score}"]}
        assert printed == rows


def test_numbers_of_the_markdown(report: tuple[list[Run], Path]) -> None:
    tables = markdown_tables((report[1] / "report.md").read_text(encoding="utf-8"))
    titles = {"ncs": "NCS of each set", "cers": "CERS of each set", "ncs_grid": "NCS on the grid of each set"}
    for score, rows in expected_main(report).items():
        printed = {(row[0], row[1]): row[2:6] for row in tables[titles[score]]}
        assert printed == rows


def test_arms_of_html_and_markdown(report: tuple[list[Run], Path], value: dict[str, Any]) -> None:
    html = html_tables((report[1] / "report.html").read_text(encoding="utf-8"))["arms"]
    markdown = markdown_tables((report[1] / "report.md").read_text(encoding="utf-8"))["Arms without intervention"]
    printed = {(row[0], row[1]): row[2] for row in html}
    assert printed == {(row[0], row[1]): row[2] for row in markdown}
    for run in report[0]:
        for arm in sorted(run.records[0]["arms"]):
            condition = run.conditions(arm)[0]
            p = mean([run.p(r, arm, condition, run.empty, run.right(r, arm)) for r in run.records])
            assert printed[(run.task, arm)] == shown(p)


def test_the_three_tell_the_same(report: tuple[list[Run], Path], value: dict[str, Any]) -> None:
    html = html_tables((report[1] / "report.html").read_text(encoding="utf-8"))
    markdown = markdown_tables((report[1] / "report.md").read_text(encoding="utf-8"))
    for name, table in value["tables"].items():
        texts = [[" ".join(cell["text"].split()) for cell in row] for row in table["rows"]]
        assert [[" ".join(c.split()) for c in row] for row in html[name]] == texts
        escaped = [[c.replace("\\", "") for c in row] for row in markdown[" ".join(table["title"].split())]]
        assert escaped == [[c.replace("\\", "") for c in row] for row in texts]


def test_an_edited_number_is_found(report: tuple[list[Run], Path], value: dict[str, Any]) -> None:
    """The comparison can fail: a mean moved in the sixth decimal is caught."""
    run = report[0][0]
    score, condition, values = next(iter(run.scores()))
    entry = run.tested[0]
    key = next(k for k in effects(value) if k[:4] == (run.task, score, condition, entry["key"]))
    moved = effects(value)[key]["mean"] + 1e-6
    assert moved != pytest.approx(mean(values[entry["key"]]), abs=1e-7)
