"""``harness-heads report RUN... -o DIR``: the protocol report of one or several runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("report", help="write the protocol report of run folders (HTML, Markdown, JSON)")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders; discovery folders may be added")
    parser.add_argument("-o", "--output", type=Path, default=None, help="folder to write (default: RUN/report)")
    parser.add_argument("--plan", type=Path, default=None, help="plan file, where the run folder does not hold it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report and print its paths and its opening."""
    from harness_heads.cli.pictures import with_pictures
    from harness_heads.protocol.evidence import load_evidence
    from harness_heads.protocol.report import write_report

    evidence = with_pictures(load_evidence(args.runs, args.plan))
    paths = write_report(evidence, args.output or args.runs[0] / "report")
    for path in paths:
        print(path)
    return 0
