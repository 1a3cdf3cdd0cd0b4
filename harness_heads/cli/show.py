"""``harness-heads show RUN ITEM``: one item drawn as in the report's gallery."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("show", help="draw one item: picture, cells, P(c) for a set and for one control")
    parser.add_argument("folder", type=Path, metavar="RUN", help="run folder")
    parser.add_argument("item", metavar="ITEM", help="item id (or its beginning), or its number in the task")
    parser.add_argument("--set", default=None, help="name of the head set (default: the run's first)")
    parser.add_argument("--control", type=int, default=0, help="which control draw stands beside it")
    parser.add_argument("-o", "--output", type=Path, default=None, help="SVG file (default: RUN/item-ITEM.svg)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the item's numbers and write its drawing."""
    from harness_heads.cli.drawings import check_svg
    from harness_heads.cli.pictures import with_pictures
    from harness_heads.protocol.evidence import load_evidence
    from harness_heads.protocol.show import show_item
    from harness_heads.protocol.terminal import print_text

    check_svg(args.output, "--output")
    evidence = with_pictures(load_evidence([args.folder]))
    shown = show_item(evidence, args.item, args.set, args.control)
    path = shown.write(args.output or args.folder / f"item-{shown.item}.svg")
    print_text(shown.text)
    print(path)
    return 0
