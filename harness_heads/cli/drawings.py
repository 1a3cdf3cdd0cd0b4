"""Where a drawing is written: SVG, and under a name that says so."""

from __future__ import annotations

from pathlib import Path

from harness_heads.errors import HarnessHeadsError


def check_svg(path: Path | None, option: str) -> None:
    """Refuse a name that promises another format, before anything is computed for it.

    Args:
        path: file that was asked for, ``None`` for the default.  option: what it was given by.

    Raises:
        HarnessHeadsError: a name that does not end in .svg.
    """
    if path is not None and path.suffix.lower() != ".svg":
        raise HarnessHeadsError(
            f"{option} {path}: drawings are written as SVG; name it {path.with_suffix('.svg').name}"
        )
