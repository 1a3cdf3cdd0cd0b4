"""``harness-heads plan``: write a plan, and say what it costs and what it could show."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness_heads.cli.plan_checks import add_include_path, check_plan, check_target
from harness_heads.errors import HarnessHeadsError


def add_parser(subparsers: Any) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("plan", help="write a plan before a run: claims, controls, cost, smallest effect")
    parser.add_argument("-o", "--output", type=Path, default=Path("plan.json"), help="plan file to write")
    claim = "necessity, steerability, null or silent of a set on a task; several are given one by one"
    parser.add_argument("--claim", action="append", default=[], metavar="KIND:SET:TASK[:MARGIN]", help=claim)
    parser.add_argument("--difference", action="append", default=[], metavar="SET:VERSUS:TASK[:MARGIN]")
    parser.add_argument("--pretrained", default="tiny-digits", help="model")
    parser.add_argument("--k", type=int, default=None, help="heads per set")
    parser.add_argument("--n", type=int, default=400, help="items per task")
    parser.add_argument("--r", type=int, default=None, help="control sets (default: what alpha and m ask for, doubled)")
    parser.add_argument("--m", type=int, default=None, help="tests in all, scans included (default: the claims)")
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--tails", default="upper", choices=("upper", "lower", "two-sided"))
    parser.add_argument("--families", default="layer", help="control families joined by +")
    parser.add_argument("--stopping", default="fixed", choices=("fixed", "two-stage", "sequential"))
    parser.add_argument("--conditions", type=int, default=1, help="betas x row scopes per arm, for the cost")
    parser.add_argument(
        "--negative-control", action="append", default=[], help="a set that is expected to show nothing"
    )
    parser.add_argument("--tuned-on", default=None, help="split or corpus that k, beta and rows were chosen on")
    parser.add_argument("--declare", action="append", default=[], metavar="ITEM=TEXT", help="checklist items 17 and 19")
    parser.add_argument("--seconds", type=float, default=None, help="measured seconds per item, condition and set")
    parser.add_argument(
        "--like", type=Path, default=None, metavar="RUN", help="a finished run to take the seconds from"
    )
    parser.add_argument("--item-sd", type=float, default=0.4, help="expected SD of an item's score")
    parser.add_argument("--control-sd", type=float, default=0.01, help="expected SD between control sets")
    add_include_path(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the plan and print cost and power.

    Raises:
        HarnessHeadsError: a plan that could not be run, or a file that holds another plan.
    """
    from harness_heads.protocol.planning import Expectation, draft, plan_text, seconds_per_answer
    from harness_heads.protocol.terminal import print_text

    if not (args.claim or args.difference):
        raise HarnessHeadsError(
            "the plan makes no claim; give --claim KIND:SET:TASK[:MARGIN] or --difference SET:VERSUS:TASK[:MARGIN]"
        )
    plan = draft(
        claims=args.claim,
        differences=args.difference,
        pretrained=args.pretrained,
        k=args.k,
        n=args.n,
        r=args.r,
        m=args.m,
        alpha=args.alpha,
        tails=args.tails,
        families=tuple(args.families.split("+")),
        stopping=args.stopping,
        negative_controls=tuple(args.negative_control),
        tuned_on=args.tuned_on,
        declared=args.declare,
    )
    check_plan(plan, args.include_path)
    check_target(args.output, plan)
    seconds = args.seconds if args.like is None else seconds_per_answer(args.like)
    expected = Expectation(args.conditions, args.item_sd, args.control_sd, seconds)
    plan.save(args.output)
    print_text(plan_text(plan, expected))
    print(args.output)
    return 0
