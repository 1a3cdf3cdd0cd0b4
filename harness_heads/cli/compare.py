"""``harness-heads compare RUN_A RUN_B``: what differs, what the sets share, and the paired test."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("compare", help="two runs side by side: settings, overlap of the sets, paired test")
    parser.add_argument("first", type=Path, metavar="RUN_A")
    parser.add_argument("second", type=Path, metavar="RUN_B")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the comparison."""
    from harness_heads.protocol.comparison import compare
    from harness_heads.protocol.evidence import load_evidence
    from harness_heads.protocol.terminal import print_text

    tables = compare(load_evidence([args.first]), load_evidence([args.second]))
    print_text("\n\n".join(f"{t.title}\n{t.text()}" + (f"\n{t.note}" if t.note else "") for t in tables))
    return 0
