"""Wide tables, one row a set, condition or model as the papers print them. They repeat the long tables' numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from harness_heads.protocol.analysis import Analysis, Test
from harness_heads.protocol.figures.arms import rows_of
from harness_heads.protocol.formats import Cell, interval_cell, number, p_cell, p_value, spread_cell, value_cell, word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.tables import Table

Cells = dict[tuple[str, str], Cell]
"""Cell by row and column label; both stand in the order of their first cell."""
PAPER_A, PAPER_B = "of arXiv:2610.13111", "of arXiv:2608.27417"
NONE = word("-")
_SETTING = re.compile(r"^(?P<corpus>[^-]+)-(?P<rest>(?:ord|ref)-(?:last|qsp|out))$")
ACCURACIES = ("grounding_drop", "stock_drop", "stock_loss")


def wide_section(a: Analysis) -> Section:
    """Every wide table that the evidence fills with more than the long ones show in one line."""
    makers = (_by_rows, _by_corpus, _by_family, _contrasts, _by_k, _by_beta, _by_model, _accuracies, _accuracies_by_k)
    tables = tuple(table for maker in makers for table in maker(a))
    lead = "The tables above once more, in the shape in which the papers print them. Bold: above every control set."
    return Section("wide", "In the papers' shape", lead, (), tables)


def setting(test: Test) -> str:
    """Name of a set without its folder, digest and cut."""
    return test.effect.name.split("/")[-1].split("@")[0]


def _by_rows(a: Analysis) -> Iterator[Table]:
    """NCS by masked rows, and CERS beside it: Tables 5 and 13."""
    for number_, tests in enumerate(_groups(a, "ncs")):
        if len({rows_of(t.effect.condition) for t in tests}) < 2:
            continue
        cells: Cells = {}
        for t in tests:
            cells[_short(t), rows_of(t.effect.condition)] = _above_all(t)
        for t in tests:
            wanted = (t.model, t.effect.name, "cers")
            steered = [u for u in a.leading if (u.model, u.effect.name, u.effect.score) == wanted]
            if steered:
                cells[_short(t), "CERS / controls (p)"] = _pair(steered[0])
        yield _table(f"wide-rows-{number_}", "NCS by masked rows", "Setting", cells, f"Tables 5, 13 {PAPER_A}")


def _by_corpus(a: Analysis) -> Iterator[Table]:
    """The grid contrast with one column a discovery corpus: Table 6."""
    for number_, tests in enumerate(_groups(a, "ncs_grid")):
        cells: Cells = {}
        for t in tests:
            found = _SETTING.match(setting(t))
            if found is not None:
                cells[found["rest"], f"{found['corpus']}: NCS [95 % CI]"] = _above_all(t)
                cells[found["rest"], f"{found['corpus']}: p"] = p_cell(t.p, "no control sets")
        if len({column for _, column in cells}) > 2:
            title = "Grid contrast by discovery corpus"
            yield _table(f"wide-corpus-{number_}", title, "Query and source", cells, f"Table 6 {PAPER_A}")


def _by_family(a: Analysis) -> Iterator[Table]:
    """Rank p of both scores against every control family: Table 9."""
    families = list(dict.fromkeys(t.effect.family for t in a.tests if t.effect.family))
    cells: Cells = {}
    for score in ("cers", "ncs"):
        for family in families:
            for t in a.tests:
                if (t.effect.score, t.effect.family) == (score, family):
                    cells.setdefault((_short(t), f"{LABELS[score]}, {family}"), p_cell(t.p))
    if len(families) > 1 and cells:
        yield _table("wide-families", "Rank p by score and control family", "Setting", cells, f"Table 9 {PAPER_A}")


def _contrasts(a: Analysis) -> Iterator[Table]:
    """Grid contrast and symmetric CERS side by side: Table 16."""
    cells: Cells = {}
    for score, shown in (("ncs_grid", "ncs_grid"), ("cers", "cers_symmetric")):
        for t in a.leading:
            e = t.effect
            found = a.task_of(t).effect(shown, e.condition, e.key, e.family) if e.score == score else None
            if found is None or (_short(t), f"{LABELS[shown]} [95 % CI]") in cells:
                continue
            cells[_short(t), f"{LABELS[shown]} [95 % CI]"] = interval_cell(found.mean, found.low, found.high)
            spread = spread_cell(found.control_mean, found.control_sd, reason="no control sets")
            cells[_short(t), f"{LABELS[shown]}, controls ± SD"] = spread
            cells[_short(t), f"{LABELS[shown]}, p"] = p_cell(found.p_upper, "no control sets")
    if len({column for _, column in cells}) > 3:
        title = "Grid contrast and symmetric CERS"
        yield _table("wide-contrasts", title, "Setting", cells, f"Table 16 {PAPER_A}")


def _by_k(a: Analysis) -> Iterator[Table]:
    """One score by set size, sets side by side: Table 14."""
    for number_, tests in enumerate(_groups(a, "ncs", "cers", "ncs_grid")):
        for step, same in enumerate(_by(tests, lambda t: t.effect.condition)):
            cells: Cells = {}
            for t in sorted(same, key=lambda t: (t.effect.k, setting(t))):
                e = t.effect
                cells[str(e.k), f"{setting(t)} [95 % CI]"] = _above_all(t)
                cells[str(e.k), f"{setting(t)}: controls ± SD"] = spread_cell(e.control_mean, e.control_sd)
                cells[str(e.k), f"{setting(t)}: p"] = p_cell(t.p, "no control sets")
            if len({row for row, _ in cells}) > 1:
                title = f"{LABELS[same[0].effect.score]} by set size, {same[0].effect.condition}"
                yield _table(f"wide-k-{number_}-{step}", title, "k", cells, f"Table 14 {PAPER_A}")


def _by_beta(a: Analysis) -> Iterator[Table]:
    """CERS by steering strength, sets side by side: Table 18."""
    for number_, tests in enumerate(_groups(a, "cers")):
        cells: Cells = {}
        for t in sorted(tests, key=lambda t: _beta(t)[0]):
            e = t.effect
            low, high = min(e.controls, default=math.nan), max(e.controls, default=math.nan)
            cells[_beta(t)[1], f"{_short(t)}"] = value_cell(e.mean, strong=e.mean > high)
            text = f"{number(e.control_mean)} [{number(low)}, {number(high)}]" if e.r else "no control sets"
            cells[_beta(t)[1], f"{_short(t)}: controls [range]"] = Cell(text, (e.control_mean, low, high))
        if len({row for row, _ in cells}) > 1:
            yield _table(f"wide-beta-{number_}", "CERS by steering strength", "beta", cells, f"Table 18 {PAPER_A}")


def _by_model(a: Analysis) -> Iterator[Table]:
    """One score of one task, a row a model and a column a set: Table 27."""
    tests = [t for t in a.leading if t.effect.score in ("cers", "ncs", "ncs_grid")]
    for number_, same in enumerate(_by(tests, lambda t: (t.effect.task, t.effect.score, t.effect.condition))):
        cells: Cells = {}
        for t in same:
            base = next((x.accuracy for x in a.task_of(t).levels if x.arm in ("matched", "grid")), math.nan)
            cells[t.model, "Baseline accuracy"] = value_cell(base, reason="no such arm")
            cells[t.model, _short(t)] = _above_all(t)
        for t in same:
            drawn = [v for u in same if u.model == t.model for v in u.effect.controls]
            mean = sum(drawn) / len(drawn) if drawn else math.nan
            cells[t.model, "Controls of all sets, mean"] = value_cell(mean, reason="no control sets")
        if len({t.model for t in same}) > 1:
            e = same[0].effect
            title = f"{LABELS[e.score]} by model, {e.task}, {e.condition}"
            yield _table(f"wide-models-{number_}", title, "Model", cells, f"Table 27 {PAPER_A}")


def _accuracies(a: Analysis) -> Iterator[Table]:
    """Accuracy without, with random and with the set's heads ablated, a column a task: Table 3 of paper B."""
    cells: Cells = {}
    for t in (t for t in a.leading if t.effect.score in ACCURACIES):
        base, controls, own = _levels(a, t)
        cells[f"{t.model}: baseline", t.effect.task] = _points(base, math.nan)
        cells[f"{t.model}: controls of {_short(t)} (k = {t.effect.k})", t.effect.task] = _points(controls, base)
        cells[f"{t.model}: {_short(t)} (k = {t.effect.k})", t.effect.task] = _points(own, base)
    if cells:
        title = "Accuracy under ablation, percent (change in points)"
        yield _table("wide-accuracy", title, "Model and condition", cells, f"Tables 3, A12, A13 {PAPER_B}")


def _accuracies_by_k(a: Analysis) -> Iterator[Table]:
    """Accuracy by number of ablated heads: Table A1 of paper B."""
    tests = [t for t in a.leading if t.effect.score in ACCURACIES]
    cells: Cells = {}
    for t in sorted(tests, key=lambda t: (t.model, t.effect.task, setting(t), t.effect.k)):
        base, controls, own = _levels(a, t)
        for row, value in ((f"controls of {setting(t)}", controls), (setting(t), own)):
            name = f"{t.model}, {t.effect.task}: {row}"
            cells.setdefault((name, "k = 0"), _points(base, math.nan))
            cells[name, f"k = {t.effect.k}"] = _points(value, math.nan)
    if len({column for _, column in cells}) > 2:
        title = "Accuracy by number of ablated heads, percent"
        yield _table("wide-accuracy-k", title, "Model, task and method", cells, f"Table A1 {PAPER_B}")


def _levels(a: Analysis, test: Test) -> tuple[float, float, float]:
    """Accuracy untouched, with the controls' mean and with the set; a fan may not have run the untouched host."""
    e = test.effect
    if e.score == "stock_drop":
        task = a.task_of(test)
        block = next(iter(task.evidence.blocks.values()))
        base = float(np.exp(block.logprobs[:, block.sets.index(task.run.sets.baseline.key), 0]).mean())
        return base, base - e.control_mean, base - e.mean
    if e.score == "stock_loss":
        return math.nan, 1 - e.control_mean, 1 - e.mean
    found = [a.task_of(test).effect(name, e.condition, e.key, e.family) for name in ("mislocated", "unparsable")]
    own = 1 - sum(x.mean for x in found if x is not None)
    return own + e.mean, own + e.mean - e.control_mean, own


def _points(value: float, base: float) -> Cell:
    if math.isnan(value):
        return word("not run")
    change = "" if math.isnan(base) else f" ({100 * (value - base):+.1f})"
    return Cell(f"{100 * value:.1f}{change}", (value, value - base))


def _above_all(test: Test) -> Cell:
    """Score with its interval, bold where it lies above every control set."""
    e = test.effect
    strong = bool(e.controls) and e.mean > max(e.controls)
    return interval_cell(e.mean, e.low, e.high, reason=e.reasons.get("mean", e.reasons.get("low", "")), strong=strong)


def _pair(test: Test) -> Cell:
    e = test.effect
    text = f"{number(e.mean)} / {number(e.control_mean, reason='no controls')} ({p_value(test.p, 'no controls')})"
    return Cell(text, (e.mean, e.control_mean, test.p))


def _short(test: Test) -> str:
    """The set's name without its folder and digest."""
    return re.sub(r"@(?!top)[0-9a-f]+", "", test.effect.name.split("/")[-1])


def _beta(test: Test) -> tuple[float, str]:
    text = next((p.removeprefix("beta=") for p in test.effect.condition.split(":") if p.startswith("beta=")), "hard")
    return (math.inf, "hard") if text == "hard" else (float(text), text)


def _groups(a: Analysis, *scores: str) -> list[list[Test]]:
    """Leading tests of the given scores, apart by model, task and score."""
    tests = [t for t in a.leading if t.effect.score in scores]
    return _by(tests, lambda t: (t.model, t.effect.task, t.effect.score))


def _by(tests: Sequence[Test], key: Callable[[Test], Hashable]) -> list[list[Test]]:
    order = {value: i for i, value in reversed(list(enumerate(map(key, tests))))}
    ordered = sorted(tests, key=lambda t: order[key(t)])
    return [list(group) for _, group in groupby(ordered, lambda t: order[key(t)])]


def _table(id: str, title: str, first: str, cells: Mapping[tuple[str, str], Cell], paper: str) -> Table:
    """Rows and columns in the order of their first cell; what is absent is a dash."""
    rows, columns = (tuple(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    body = tuple((word(row), *(cells.get((row, column), NONE) for column in columns)) for row in rows)
    return Table(id, title, (first, *columns), body, "", paper)
