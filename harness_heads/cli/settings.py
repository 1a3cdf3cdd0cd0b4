"""``harness-heads settings``: the model_args that are ours, with their defaults."""

from __future__ import annotations

import argparse

from tabulate import tabulate

from harness_heads.settings import HELP, Settings


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("settings", help="list our model_args")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one row per setting."""
    defaults = Settings().to_dict()
    rows = [(name, _shown(defaults[name]), text) for name, text in HELP.items()]
    print(tabulate(rows, headers=("model_arg", "default", "meaning"), tablefmt="simple"))
    return 0


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "+".join(map(str, value))
    return "" if value is None else str(value)
