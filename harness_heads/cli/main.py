"""``harness-heads``: everything around a run. Each subcommand is one module with ``add_parser`` and ``run``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from harness_heads import __version__
from harness_heads.errors import HarnessHeadsError

SUBCOMMANDS = (
    "doctor",
    "discover",
    "overlap",
    "import_",
    "attention",
    "plan",
    "run",
    "report",
    "check",
    "compare",
    "show",
    "lint_task",
    "tasks_path",
    "settings",
    "head_sets",
)


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand; modules import their heavy parts only when run."""
    parser = argparse.ArgumentParser(prog="harness-heads", description=__doc__)
    parser.add_argument("--version", action="version", version=f"harness-heads {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in SUBCOMMANDS:
        importlib.import_module(f"harness_heads.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; errors that a user can mend are one line and status 1."""
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except HarnessHeadsError as error:
        print(f"harness-heads {arguments.command}: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
