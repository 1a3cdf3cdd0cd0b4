"""Evidence -> report in HTML, Markdown and JSON, all from one Analysis and one Jinja environment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from harness_heads import __version__
from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.analysis import Analysis, analyse
from harness_heads.protocol.checklist import checklist, counts
from harness_heads.protocol.claims import claim_sentence, judge
from harness_heads.protocol.evidence import Evidence, evidence_from_dict
from harness_heads.protocol.layout import Report
from harness_heads.protocol.malformed import json_object
from harness_heads.protocol.opening import badges, figures, sentences, status
from harness_heads.protocol.resampled import RESAMPLES
from harness_heads.protocol.rules import RULES, findings
from harness_heads.protocol.sections import sections
from harness_heads.protocol.tables import markdown_text, plain

SCHEMA = 1
_UNBROKEN = re.compile(r"\[-?\d[-\d., %]*\]|± \S+")
NAMES = ("report.html", "report.md", "report.json")


class ReportPaths(NamedTuple):
    """The three files of a report."""

    html: Path
    markdown: Path
    json: Path


def write_report(evidence: Evidence, out: Path, resamples: int = RESAMPLES) -> ReportPaths:
    """Write a report; all three files or none.

    Args:
        evidence: checked evidence.
        out: folder, made where it does not exist.
        resamples: bootstrap resamples.

    Raises:
        HarnessHeadsError: the folder cannot be written.
    """
    texts = render(analyse(evidence, resamples))
    paths = ReportPaths(*(Path(out) / name for name in NAMES))
    parts = [p.with_name(p.name + ".part") for p in paths]
    try:
        paths.html.parent.mkdir(parents=True, exist_ok=True)
        for part, text in zip(parts, texts, strict=True):
            part.write_bytes(text.encode("utf-8"))
        for part, path in zip(parts, paths, strict=True):
            os.replace(part, path)
    except OSError as error:
        for part in parts:
            if part.is_file():
                part.unlink()
        raise HarnessHeadsError(f"report folder {out} cannot be written: {error.strerror}") from error
    return paths


def render(analysis: Analysis) -> tuple[str, str, str]:
    """HTML, Markdown and JSON text."""
    report = compose(analysis)
    environment = _environment()
    html = environment.get_template("report.html.j2").render(report=report, assets=_assets(environment))
    markdown = environment.get_template("report.md.j2").render(report=report)
    value = json.dumps(report_dict(analysis, report), indent=1, ensure_ascii=False, allow_nan=False)
    return html, markdown.strip() + "\n", value + "\n"


def compose(analysis: Analysis) -> Report:
    """Everything that is printed, in its order."""
    found = findings(analysis)
    items = checklist(analysis, found)
    tripped = {rule.name: sum(f.rule == rule.name for f in found) for rule in RULES}
    return Report(
        title=_title(analysis),
        status=status(analysis),
        badges=badges(analysis),
        sentences=sentences(analysis, found),
        figures=figures(analysis),
        verdicts=judge(analysis, found),
        counts=counts(items),
        sections=sections(analysis),
        checklist=items,
        findings=found,
        notes=analysis.evidence.notes,
        digest=analysis.evidence.digest,
        rules=tuple((rule.name, rule.guards, tripped[rule.name]) for rule in RULES),
    )


def report_dict(analysis: Analysis, report: Report) -> dict[str, Any]:
    """The JSON report: numbers unrounded, NaN and infinity as null; schema in ``report.schema.json``."""
    tests = []
    for test in analysis.tests:
        effect = _plain(asdict(test.effect)) | {"reasons": dict(test.effect.reasons)}
        own = {k: v for k, v in vars(test).items() if k not in ("effect", "resampled", "specs")}
        tests.append({"id": test.id, **effect, **_plain(asdict(test.resampled)), **_plain(own)})
    tasks = []
    for task in analysis.tasks:
        tasks.append(
            {
                "run": task.evidence.run,
                "task": task.evidence.task,
                "n": task.evidence.n,
                "headroom": plain(task.headroom),
                "arms": [_plain(asdict(level)) for level in task.levels],
                "audits": [{**_plain(asdict(x)), "passed": x.passed} for x in task.audits],
                "effects": [_plain(asdict(e)) for e in task.effects],
            }
        )
    return {
        "schema": SCHEMA,
        "package": __version__,
        "title": report.title,
        "status": report.status,
        "badges": list(report.badges),
        "sentences": [asdict(s) for s in report.sentences],
        "alpha": analysis.alpha,
        "claims": [
            {
                "claim": {k: v for k, v in asdict(v.claim).items() if v is not None},
                "sentence": claim_sentence(v.claim),
                "carried": v.carried,
                "numbers": v.numbers,
                "reasons": list(v.reasons),
                "p": plain(v.p),
            }
            for v in report.verdicts
        ],
        "checklist": {"counts": report.counts, "items": [asdict(i) for i in report.checklist]},
        "findings": [{**asdict(f), "tests": list(f.tests)} for f in report.findings],
        "notes": list(report.notes),
        "tests": tests,
        "tasks": tasks,
        "tables": {table.id: table.to_dict() for section in report.sections for table in section.tables},
        "evidence_digest": report.digest,
        "evidence": analysis.evidence.to_dict(),
    }


def read_report(path: Path) -> Evidence:
    """The evidence that a JSON report carries, bit by bit."""
    value = json_object(path)
    if value.get("schema") != SCHEMA or "evidence" not in value:
        raise HarnessHeadsError(f"{path} is no report of schema {SCHEMA}")
    return evidence_from_dict(value["evidence"])


def stylesheet() -> str:
    """The report's style sheet, for a figure that stands alone."""
    return str(_assets(_environment())["css"])


def _title(a: Analysis) -> str:
    models = list(dict.fromkeys(str(run.model["id"]).rstrip("/").split("/")[-1] for run in a.evidence.runs))
    tasks = list(dict.fromkeys(t.task for t in a.evidence.tasks))
    return f"{', '.join(models) or 'Stock model'}: {', '.join(tasks)}"


def _plain(value: Any) -> Any:
    """JSON value without NaN, infinity and tuples."""
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _environment() -> Environment:
    """StrictUndefined: a name that a template misspells is an error; autoescape: a class name is never markup."""
    environment = Environment(
        loader=PackageLoader("harness_heads.protocol"),
        undefined=StrictUndefined,
        autoescape=lambda name: name is not None and name.startswith("report.html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = markdown_text
    environment.filters["sort_key"] = lambda cell: repr(cell.values[0]) if cell.values else cell.text
    environment.filters["held"] = _held
    environment.filters["svg"] = Markup  # our own markup; every text in it was escaped when it was drawn
    return environment


def _held(text: str) -> Markup:
    """Text of a cell that may break before an interval or a spread, never inside one."""
    return Markup(_UNBROKEN.sub(r'<span class="held">\g<0></span>', str(escape(text))))


def _assets(environment: Environment) -> dict[str, Markup]:
    """Style sheet and script, inlined."""
    assert environment.loader is not None
    names = {"css": "report.css", "js": "sort.js"}
    return {k: Markup(environment.loader.get_source(environment, name)[0]) for k, name in names.items()}
