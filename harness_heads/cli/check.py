"""``harness-heads check RUN...``: checklist, pitfalls, claims; status 1 where a claim is not carried or not known."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "check", help="hold the claims of a plan to the evidence; exit 1 if one is not carried"
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders; discovery folders may be added")
    parser.add_argument("--plan", type=Path, default=None, help="plan file, where the run folder does not hold it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print everything that the rules find; 1 where a claim is not carried, or a plan's claims are not at hand."""
    from harness_heads.protocol.analysis import analyse
    from harness_heads.protocol.evidence import load_evidence
    from harness_heads.protocol.report import compose
    from harness_heads.protocol.terminal import check_text, print_text

    evidence = load_evidence(args.runs, args.plan)
    report = compose(analyse(evidence))
    print_text(check_text(report))
    # runs that were started with a plan make claims: without the plan none of them was judged
    unknown = evidence.plan is None and any(run.plan_digest is not None for run in evidence.runs)
    return int(unknown or any(not verdict.carried for verdict in report.verdicts))
