"""``harness-heads tasks-path``: where the task YAMLs are, for ``lmms-eval --include_path``."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("tasks-path", help="print the folder of the task YAMLs (lmms-eval --include_path)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the folder."""
    import harness_heads.tasks

    print(Path(harness_heads.tasks.__file__).resolve().parent)
    return 0
