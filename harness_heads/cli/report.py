"""``harness-heads report RUN... -o DIR``: the protocol report of one or several runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness_heads.protocol.report import ReportPaths


def add_parser(subparsers: Any) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("report", help="write the protocol report of run folders (HTML, Markdown, JSON)")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders; discovery folders may be added")
    parser.add_argument("-o", "--output", type=Path, default=None, help="folder to write (default: RUN/report)")
    parser.add_argument("--plan", type=Path, default=None, help="plan file, where the run folder does not hold it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report and print its paths."""
    for path in report_on(args.runs, args.output or args.runs[0] / "report", args.plan):
        print(path)
    return 0


def report_on(runs: Sequence[Path], out: Path, plan: Path | None = None) -> ReportPaths:
    """The protocol report over run folders, with its gallery's pictures where their data lie on this machine.

    A plan that the runs were not started with confirms nothing, and that is said.

    Raises:
        HarnessHeadsError: if the runs do not belong together, or lack what the report needs.
    """
    from harness_heads.cli.pictures import with_pictures
    from harness_heads.protocol.evidence import load_evidence
    from harness_heads.protocol.report import write_report

    evidence = load_evidence(runs, plan)
    if plan is not None and evidence.exploratory:
        print(
            f"harness-heads: not all of these runs were started with {plan}: the report is EXPLORATORY", file=sys.stderr
        )
    return write_report(with_pictures(evidence), out)
