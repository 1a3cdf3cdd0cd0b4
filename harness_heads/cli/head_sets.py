"""``harness-heads head-sets``: the shipped head sets, by the names that ``head_set=`` takes."""

from __future__ import annotations

import argparse

from tabulate import tabulate

from harness_heads.head_sets import resolve, shipped


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("head-sets", help="list the shipped head sets", description=__doc__)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one row per set."""
    rows = [(name, head_set.model.id, len(head_set), head_set.key) for name in shipped() if (head_set := resolve(name))]
    print(tabulate(rows, headers=("head_set", "model", "heads", "identity"), tablefmt="simple"))
    return 0
