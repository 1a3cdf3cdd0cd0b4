"""Settings of every run, versions and the self-check: what is needed to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness_heads.protocol.analysis import Analysis
from harness_heads.protocol.formats import word
from harness_heads.protocol.layout import Section
from harness_heads.protocol.tables import Table

_LOCAL = ("journal", "plan", "condition_batch")  # paths and sizes of one machine


def runs_section(a: Analysis) -> Section:
    """One table a run."""
    tables = []
    for number, run in enumerate(a.evidence.runs):
        tasks = ", ".join(t.evidence.task for t in a.tasks if t.evidence.run == number)
        lines: dict[str, Any] = {"op": run.op, "tasks": tasks, "seed": run.value.get("seed")}
        lines |= {f"model: {k}": v for k, v in run.model.items() if k != "geometry"}
        lines["model: heads per layer"] = ", ".join(str(n) for n in run.geometry.heads)
        lines |= {f"setting: {k}": v for k, v in sorted(run.settings.items()) if k not in _LOCAL}
        lines["conditions"] = ", ".join(c.name for c in run.conditions)
        lines |= {f"version: {k}": v for k, v in sorted((run.value.get("versions") or {}).items())}
        lines["plan"] = run.plan_digest or "none"
        lines["self-check"] = _proof(run.value.get("proof"))
        for task in a.tasks:
            if task.evidence.run == number:
                n = task.evidence.numerics
                lines[f"numerics: {task.evidence.task}"] = (
                    f"{', '.join(n['dtype']) or 'dtype not reported'}, "
                    f"{', '.join(n['kernel']) or 'kernel not reported'}, "
                    f"largest gap to the host's forward {n['baseline_gap']}"
                )
        rows = tuple((word(k), word(_text(v))) for k, v in lines.items())
        tables.append(Table(f"run-{number}", f"Run {number}: {run.op} on {run.model['id']}", ("What", "Value"), rows))
    return Section("runs", "Settings", "", (), tuple(tables))


def _text(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "none"
    if isinstance(value, list):
        return ", ".join(str(v) for v in value)
    return str(value)


def _proof(value: Any) -> str:
    if not value:
        return "none reported"
    if isinstance(value, Mapping):
        # the older records name no weak conditions
        weak = value.get("weak") or []
        figures = ", ".join(f"{k}: {_text(v)}" for k, v in sorted(value.items()) if k != "weak")
        return figures + (f"; TOO WEAK to tell acting from not acting: {_text(weak)}" if weak else "")
    return str(value)
