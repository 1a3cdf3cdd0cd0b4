"""What a path on the command line holds: run folders, runs of a fan and discovery folders, at any depth below it.

``lmms_eval`` leaves one run folder, ``harness-heads run`` a folder of them, ``harness-heads discover`` a folder of
discovery folders. Each may be named as it is; what lies where is found here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_heads.discovery.output import SCORES
from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.fan import FAN, HEAD_SET, is_member

SAMPLES = re.compile(r"^(?P<stamp>.*?)_?samples_(?P<task>.+)\.jsonl$")
RUN_FILE, PLAN_FILE = "run.json", "plan.json"
_RESULTS = "*results.json"


@dataclass(frozen=True)
class Contents:
    """What was found.

    Attributes:
        runs: samples files by run folder, the nearest one above them that holds ``run.json`` (else the path itself).
        fan: runs of fans.
        discoveries: discovery folders, one a setting or method.
    """

    runs: Mapping[Path, tuple[Path, ...]]
    fan: tuple[Path, ...] = ()
    discoveries: tuple[Path, ...] = ()


def look(path: Path) -> Contents:
    """Everything below a path that can be read.

    Raises:
        HarnessHeadsError: no such folder, or none of the three in it.
    """
    if path.is_file() and SAMPLES.match(path.name):
        return Contents({path.parent: (path,)})
    if not path.is_dir():
        raise HarnessHeadsError(f"{path}: no such run folder")
    discoveries = tuple(sorted(p.parent for p in path.rglob(SCORES) if (p.parent / HEAD_SET).is_file()))
    if is_member(path):
        return Contents({}, (path,), discoveries)
    named = sorted(p.parent for p in path.rglob(HEAD_SET) if is_member(p.parent))
    # a head-set file that somebody keeps below a run folder makes no run of a fan
    fan = tuple(p for p in named if (p.parent / FAN).is_file() or any(map(_is_samples, p.rglob("*.jsonl"))))
    runs: dict[Path, tuple[Path, ...]] = {}
    for file in sorted(p for p in path.rglob("*.jsonl") if _is_samples(p) and not set(fan) & set(p.parents)):
        home = _home(file, path)
        runs[home] = (*runs.get(home, ()), file)
    if not (runs or fan or discoveries):
        if next(path.rglob(_RESULTS), None) is not None:
            raise HarnessHeadsError(f"{path}: results without samples; run again with --log_samples")
        raise HarnessHeadsError(f"{path}: no samples in this folder; is it a run folder of lmms_eval?")
    return Contents(runs, fan, discoveries)


def _is_samples(path: Path) -> bool:
    return SAMPLES.match(path.name) is not None


def _home(file: Path, top: Path) -> Path:
    """The run folder of a samples file."""
    for folder in file.parents:
        if (folder / RUN_FILE).is_file():
            return folder
        if folder == top:
            break
    return top
