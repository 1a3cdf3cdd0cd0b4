"""``harness-heads overlap``: what head sets share, against chance and against the noise of discovery itself."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from harness_heads.errors import HarnessHeadsError
from harness_heads.protocol.formats import counted

if TYPE_CHECKING:
    from harness_heads.discovery.output import Stored
    from harness_heads.heads import HeadSet


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("overlap", help="compare head sets", description=__doc__)
    parser.add_argument("sets", nargs="+", metavar="SET", help="shipped names, files, or folders of `discover`")
    parser.add_argument("--k", type=_sizes, default=(), help="sizes for overlap against k, joined by + (20+50+100)")
    parser.add_argument("--native", action="append", default=[], metavar="SET", help="columns of a crossover table")
    parser.add_argument("--splits", type=int, default=200, help="half-splits for the noise ceiling (0: none)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the half-splits")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the shared and only parts of each pair")
    parser.add_argument("--json", dest="json_file", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the overlap matrix (SVG)")
    parser.set_defaults(run=run)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("+"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: join sizes by +, as in 20+50+100") from error


def run(args: argparse.Namespace) -> int:
    """Print every table that the sets allow."""
    from harness_heads.cli.drawings import check_svg
    from harness_heads.discovery.chance import uniform_chance
    from harness_heads.discovery.output import PER_LAYER
    from harness_heads.discovery.overlap import chance_layer_matched, matrix

    check_svg(args.picture, "--picture")
    specs = (*args.sets, *args.native)
    sets = [_open(spec) for spec in specs]
    names = labels([s.name for s in sets], specs)
    shares = matrix(sets)
    out: dict[str, Any] = {
        "sets": [[n, s.name, s.identity] for n, s in zip(names, sets, strict=True)],
        "shared": shares.tolist(),
    }
    print("Shared heads\n")
    print(tabulate([[n, *row] for n, row in zip(names, shares.tolist(), strict=True)], headers=["", *names]))
    if len({s.model.id for s in sets}) > 1:
        print("\nThe sets belong to different models of one geometry; heads are compared by their indices.")
    rows, out["chance"] = [], {}
    for i, j in combinations(range(len(sets)), 2):
        a, b = sets[i], sets[j]
        uniform, layered = uniform_chance(len(a), len(b), a.geometry.total), chance_layer_matched(a, b)
        rows.append(
            [
                f"{names[i]} / {names[j]}",
                shares[i, j],
                *(f"{c.mean:.2f} [{c.low}, {c.high}]" for c in (uniform, layered)),
            ]
        )
        pair = f"{names[i]} / {names[j]}"
        out["chance"][pair] = {"uniform": uniform._asdict(), "layer_matched": layered._asdict()}
    print("\nAgainst chance: mean [central 95 %]\n")
    print(tabulate(rows, headers=["pair", "shared", "uniform sets", "layer-matched sets"]))
    stored = _stored(specs)
    if args.k:
        _print_curves(sets, stored, names, args.k, out)
    if args.splits:
        layered_sets = [n for n, s in zip(names, sets, strict=True) if s.provenance.get("selection") == PER_LAYER]
        if layered_sets:
            print(f"\nNoise ceiling: not estimable, {', '.join(layered_sets)} holds the top heads of every layer.")
        elif all(s is not None for s in stored):
            _print_ceilings([s for s in stored if s is not None], sets, names, args, out)
        else:
            print("\nNoise ceiling: not estimable, it needs per-sample scores (folders of `harness-heads discover`).")
    if args.native:
        _print_crossover(sets, names, len(args.sets), out)
    if args.save is not None:
        _save_parts(sets, args.save)
    if args.picture is not None:
        _draw(shares, names, args.picture)
    if args.json_file is not None:
        args.json_file.parent.mkdir(parents=True, exist_ok=True)
        args.json_file.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    return 0


def _open(spec: str) -> HeadSet:
    from harness_heads.head_sets import resolve

    return resolve(spec)


def labels(names: Sequence[str], specs: Sequence[str]) -> list[str]:
    """A label a set that tells it from every other: its name, less the parts that all names begin with.

    Sets of one name (the same setting of two runs) go by what was typed, and by their place if that is the same too.
    """
    parts = [name.split("/") for name in names]
    common = 0
    while all(len(p) > common + 1 for p in parts) and len({p[common] for p in parts}) == 1:
        common += 1
    short = ["/".join(p[common:]) for p in parts]
    out = [label if short.count(label) == 1 else spec for label, spec in zip(short, specs, strict=True)]
    return [label if out.count(label) == 1 else f"{label} ({i})" for i, label in enumerate(out, start=1)]


def _stored(specs: Sequence[str]) -> list[Stored | None]:
    from harness_heads.discovery.output import SCORES, read

    return [read(Path(spec)) if (Path(spec) / SCORES).exists() else None for spec in specs]


def _print_curves(
    sets: Sequence[HeadSet],
    stored: Sequence[Stored | None],
    names: Sequence[str],
    sizes: Sequence[int],
    out: dict[str, Any],
) -> None:
    from harness_heads.discovery.overlap import overlap_curve
    from harness_heads.discovery.score import rank

    # with the scores at hand, the whole ranking is known and not the cut set alone
    ranked = [
        list(s.heads) if kept is None else rank(kept.scores, s.geometry) for s, kept in zip(sets, stored, strict=True)
    ]
    rows = []
    out["against_k"] = {"k": list(sizes)}
    for i, j in combinations(range(len(sets)), 2):
        curve = overlap_curve(ranked[i], ranked[j], sizes)
        rows.append([f"{names[i]} / {names[j]}", *curve])
        out["against_k"][f"{names[i]} / {names[j]}"] = curve
    rows.append(["chance (uniform)", *(f"{k * k / sets[0].geometry.total:.1f}" for k in sizes)])
    print("\nOverlap against k\n")
    print(tabulate(rows, headers=["pair", *(f"k={k}" for k in sizes)]))


def _print_ceilings(
    stored: Sequence[Stored],
    sets: Sequence[HeadSet],
    names: Sequence[str],
    args: argparse.Namespace,
    out: dict[str, Any],
) -> None:
    from harness_heads.discovery.overlap import split_half

    rows, out["split_half"] = [], {}
    pairs = list(combinations(range(len(sets)), 2)) or [(0, 0)]
    for i, j in pairs:
        k = min(len(sets[i]), len(sets[j]))
        result = split_half(stored[i].scored(), stored[j].scored(), k, splits=args.splits, seed=args.seed)
        low, high = result.cross_range
        rows.append(
            [
                f"{names[i]} / {names[j]}" if i != j else names[i],
                f"{result.cross:.1f} [{low:g}, {high:g}]",
                f"{result.ceiling:.1f}",
                f"{result.fraction:.2f}",
                f"{result.corrected:.2f}",
                result.half,
            ]
        )
        out["split_half"][f"{names[i]} / {names[j]}"] = asdict(result)
    print(f"\nAcross halves of the samples ({args.splits} half-splits; the range is no confidence interval)\n")
    headers = ["pair", "shared", "ceiling", "fraction", "above chance", "samples a half"]
    print(tabulate(rows, headers=headers))


def _print_crossover(sets: Sequence[HeadSet], names: Sequence[str], count: int, out: dict[str, Any]) -> None:
    from harness_heads.discovery.overlap import crossover

    k = min(len(s) for s in sets)
    table = crossover(
        dict(zip(names[:count], (s.heads for s in sets[:count]), strict=True)),
        dict(zip(names[count:], (s.heads for s in sets[count:]), strict=True)),
        k,
    )
    out["crossover"] = {"k": k, "table": table}
    print(f"\nCrossover: top {k} of each combination against the native sets\n")
    print(tabulate([[name, *row.values()] for name, row in table.items()], headers=["", *names[count:]]))


def _save_parts(sets: Sequence[HeadSet], folder: Path) -> None:
    from harness_heads.discovery.overlap import decompose, distinct

    if len(sets) < 2:
        raise HarnessHeadsError("--save needs two sets to take apart")
    for a, b in combinations(distinct(sets), 2):
        parts = decompose(a, b)
        for part in (parts.shared, parts.only_a, parts.only_b):
            if part is not None:
                file = folder / f"{part.name.replace('/', '__')}.json"
                part.save(file)
                print(f"{part.name}: {counted(len(part), 'head')} -> {file}")


def _draw(shares: Any, names: Sequence[str], file: Path) -> None:
    from harness_heads.discovery.drawing import overlap_picture

    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(overlap_picture(shares, names), encoding="utf-8")
