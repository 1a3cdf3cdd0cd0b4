"""One item, drawn and told, for ``harness-heads show``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.protocol.analysis import Test, analyse
from harness_heads.protocol.evidence import Evidence
from harness_heads.protocol.gallery import item_figure
from harness_heads.protocol.report import stylesheet
from harness_heads.protocol.scores import LABELS
from harness_heads.protocol.sections.items import item_values

QUICK = 50  # resamples: no interval is printed here


@dataclass(frozen=True)
class Shown:
    """An item's text and drawing."""

    item: str
    text: str
    svg: str

    def write(self, path: Path) -> Path:
        """Write the drawing as an SVG file of its own."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise HarnessHeadsError(f"{path} cannot be written: {error.strerror}") from error
        return path


def show_item(evidence: Evidence, wanted: str, set_name: str | None = None, control: int = 0) -> Shown:
    """Find an item by id, beginning of its id, or number, and draw it.

    Raises:
        HarnessHeadsError: no such item or set, or a beginning that several items share.
    """
    analysis = analyse(evidence, QUICK)
    tests = analysis.leading
    if set_name is not None:
        names = [t.effect.name for t in tests]
        tests = tuple(t for t in tests if set_name in (t.effect.name, t.effect.name.split("/")[-1]))
        if not tests:
            raise HarnessHeadsError(f"no set {set_name!r} in this run{did_you_mean(set_name, names)}")
    found: list[tuple[Test, int]] = []
    for test in tests:
        task = analysis.task_of(test).evidence
        for row, item in enumerate(task.items):
            if item == wanted or (len(wanted) >= 4 and item.startswith(wanted)) or str(task.index[row]) == wanted:
                found.append((test, row))
    if not found:
        known = [i for t in analysis.tasks for i in t.evidence.items]
        raise HarnessHeadsError(f"no item {wanted!r} in this run{did_you_mean(wanted, known)}")
    items = {analysis.task_of(t).evidence.items[row] for t, row in found}
    if len(items) > 1 and len({analysis.task_of(t).evidence.task for t, _ in found}) == 1:
        raise HarnessHeadsError(f"{wanted!r} begins {len(items)} items: {', '.join(sorted(items)[:3])}")
    test, row = found[0]
    figure = item_figure(analysis, test, row, "item", control)
    own, null = item_values(analysis, test)
    task = analysis.task_of(test).evidence
    lines = [figure.title, f"task {task.task}, number {task.index[row]}, {test.effect.condition}"]
    lines += [
        f"  {letter}. {' '.join(option.split())}"
        for letter, option in zip(task.letters, task.options[row], strict=False)
    ]
    lines.append(figure.alt)
    lines.append(f"{LABELS[test.effect.score]} of this item: set {own[row]:.4f}")
    if null.shape[1]:
        lines[-1] += f", controls {null[row].min():.4f} to {null[row].max():.4f}"
    head = '<svg xmlns="http://www.w3.org/2000/svg" '
    svg = figure.svg.replace("<svg ", head, 1).replace(">", f"><style>{stylesheet()}</style>", 1)
    return Shown(task.items[row], "\n".join(lines), svg)
