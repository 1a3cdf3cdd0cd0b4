"""Text for the terminal, safe where the terminal knows ASCII only (LC_ALL=C)."""

from __future__ import annotations

import sys

from harness_heads.protocol.layout import Report

_PLAIN = str.maketrans({"±": "+-", "…": "...", "·": "-", "✓": "*", "−": "-"})


def print_text(text: str) -> None:
    """Print; characters that the terminal cannot show are replaced, never an error."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    print(text)


def check_text(report: Report) -> str:
    """Opening, claims, checklist and findings."""
    lines = [report.status, *report.badges, ""]
    if report.verdicts:
        lines.append("Claims")
        lines += [f"  {'carried    ' if v.carried else 'NOT CARRIED'} {v.sentence}" for v in report.verdicts]
    else:
        lines.append("No claim is made.")
    lines += ["", "What it shows", *(f"  {s.text}" for s in report.sentences)]
    count = ", ".join(f"{n} {status}" for status, n in report.counts.items())
    lines += ["", f"Checklist: {count}"]
    lines += [f"  {i.number:2}. {i.status}: {i.title}: {i.text}" for i in report.checklist]
    lines += ["", f"Pitfalls: {len(report.findings)}"]
    lines += [f"  {f.rule}{' (breaks claims)' if f.breaks else ''}: {f.where}: {f.text}" for f in report.findings]
    lines += [f"Note: {note}" for note in report.notes]
    return "\n".join(" ".join(line.splitlines()) for line in lines)
