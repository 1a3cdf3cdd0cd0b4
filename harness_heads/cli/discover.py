"""``harness-heads discover``: find heads by attention, under every choice that the papers vary."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from harness_heads.discovery.design import (
    OPTION_HELP,
    OPTION_VALUES,
    QUERIES,
    Options,
    corpus_settings,
    paper_settings,
    parse_setting,
)
from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.formats import counted

if TYPE_CHECKING:
    from harness_heads.discovery.methods import Method


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("discover", help="find heads by attention", description=__doc__)
    what = parser.add_argument_group("what")
    what.add_argument("--model", help="hub id, folder, or tiny-digits")
    what.add_argument("--setting", action="append", default=[], metavar="NAME", help="co-ref-qsp; may be repeated")
    what.add_argument("--all-settings", action="store_true", help="the 12 settings of paper A (tiny-digits: its 6)")
    what.add_argument(
        "--method", action="append", default=[], metavar="NAME", help="vrh, gaze, out-sum-avg ...; may be repeated"
    )
    what.add_argument("--all-methods", action="store_true", help="every named method and the 2^3 variants")
    what.add_argument("--corpus", help="corpus of --method: refcoco, co-ref ... (default: each method's own)")
    what.add_argument("--data", type=Path, help="local copy of the corpus, or your own folder or YAML file")
    what.add_argument("--list", action="store_true", help="print paper B's Tables 1 and 2 and all methods, and stop")
    size = parser.add_argument_group("how much")
    size.add_argument("--n", type=int, help="samples (default 400 for settings, 200 for methods)")
    size.add_argument("--seed", type=int, default=0)
    size.add_argument("--k", type=int, help="heads of a set (default: 9 %% of the model, at most 100)")
    size.add_argument("--per-layer", action="store_true", help="the k best of every layer (default k 3)")
    size.add_argument("--batch-size", type=int, default=6, help="prompts in one forward pass")
    opened = parser.add_argument_group("open points of the papers (they stand in the head set's provenance)")
    defaults = Options()
    for name, values in OPTION_VALUES.items():
        flag = {"output": "--output-tokens"}.get(name, f"--{name.replace('_', '-')}")
        opened.add_argument(flag, dest=name, choices=values, default=getattr(defaults, name), help=OPTION_HELP[name])
    opened.add_argument("--widen", action="store_true", help=OPTION_HELP["widen"])
    opened.add_argument(
        "--max-new-tokens", type=int, default=defaults.max_new_tokens, help=OPTION_HELP["max_new_tokens"]
    )
    how = parser.add_argument_group("how")
    how.add_argument("-o", "--output", dest="folder", type=Path, help="folder (default reports/runs/discover-<model>)")
    how.add_argument("--dtype", help="float32, bfloat16 ... (default float32 on a CPU, bfloat16 on a GPU)")
    how.add_argument("--device", help="cpu, cuda ... (default: a GPU if there is one)")
    how.add_argument("--skip-corrupt", action="store_true", help="leave out samples whose image cannot be decoded")
    how.add_argument("--fresh", action="store_true", help="start over instead of resuming")
    how.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=run)


def _embedded_corpus(name: str) -> str:
    """The digits' counterpart of a method's own corpus: ``cm-ord`` is ``dg-ord``, ``refcoco`` is ``digits``."""
    query = name.partition("-")[2]
    return f"dg-{query}" if query in QUERIES else "digits"


def run(args: argparse.Namespace) -> int:
    """Discover and say where the sets are."""
    if args.list:
        from harness_heads.discovery.tables import details, table_1, table_2

        print(f"Paper B, Table 1\n\n{table_1()}\n\nPaper B, Table 2\n\n{table_2()}\n\nAll methods\n\n{details()}")
        return 0
    if not args.model:
        raise HarnessHeadsError("give --model: a hub id, a folder, or tiny-digits")
    settings = [parse_setting(name) for name in args.setting]
    if not (settings or args.all_settings or args.method or args.all_methods):
        raise HarnessHeadsError("give --setting, --all-settings, --method or --all-methods")

    from harness_heads.discovery.discover import Request, check_request, discover_methods, discover_settings
    from harness_heads.discovery.loading import load
    from harness_heads.discovery.methods import ALL, method

    chosen = [method(name) for name in (ALL if args.all_methods else args.method)]
    options = Options(
        **{name: getattr(args, name) for name in OPTION_VALUES}, widen=args.widen, max_new_tokens=args.max_new_tokens
    )
    loaded = load(args.model, dtype=args.dtype, device=args.device)
    embedded = loaded.reference.id == "tiny-digits"
    if args.all_settings:
        settings += corpus_settings("dg") if embedded else paper_settings()
    folder = args.folder or Path("reports") / "runs" / f"discover-{loaded.slug}"

    def request(default_n: int) -> Request:
        n = default_n if args.n is None else args.n
        return Request(
            folder,
            n,
            args.seed,
            args.k,
            args.per_layer,
            options,
            args.batch_size,
            args.data,
            args.skip_corrupt,
            args.fresh,
            not args.quiet,
        )

    check_request(loaded, request(1))
    found = []
    if settings:
        found += discover_settings(loaded, settings, request(400))
    by_corpus: dict[str, list[Method]] = {}
    for one in chosen:
        own = _embedded_corpus(one.corpus) if embedded else one.corpus
        by_corpus.setdefault(args.corpus or own, []).append(one)
    for corpus, members in by_corpus.items():
        found += discover_methods(loaded, members, corpus, request(200))
    for finding in found:
        share = "" if finding.stability is None else f", halves share {finding.stability.own[0]:.1f}"
        place = folder / finding.name.replace("/", "-")
        print(f"{finding.head_set.name}: {counted(len(finding.head_set), 'head')}{share} -> {place}")
    return 0
