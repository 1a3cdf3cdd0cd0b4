"""How stable discovery is on the embedded model, and what changing the source or the query does to the heads.

    harness-heads discover --model tiny-digits --all-settings --n 400 --output reports/runs/discover-tiny-digits
    python reports/tiny-digits/discovery_stability.py reports/runs/discover-tiny-digits [--ship]

Writes ``discovery.json``, ``discovery.md`` and ``discovery-overlap.svg`` beside this file, whatever the figures are;
with ``--ship`` it also puts the two sets of the demo among the shipped ones. Run it again whenever the weights change.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tabulate import tabulate

from harness_heads.discovery.design import corpus_settings
from harness_heads.discovery.drawing import overlap_picture
from harness_heads.discovery.output import Stored, read
from harness_heads.discovery.overlap import SplitHalf, matrix, split_half
from harness_heads.head_sets import shipped_path

HERE = Path(__file__).resolve().parent
SHIPPED = ("dg-ref-qsp", "dg-ord-last")
WANTED = 0.90  # share of the top k that two halves of the data should have in common
SPLITS = 200


def collect(folder: Path) -> dict[str, Any]:
    """All figures; plain JSON."""
    settings = corpus_settings("dg")
    stored = {s.name: read(folder / s.name) for s in settings}
    halves = {name: _own(one) for name, one in stored.items()}
    changed: dict[str, dict[str, Any]] = {"source": {}, "query": {}}
    for a, b in combinations(settings, 2):
        what = "source" if a.query == b.query else "query" if a.source == b.source else None
        if what is not None:
            k = len(stored[a.name].head_set)
            result = split_half(stored[a.name].scored(), stored[b.name].scored(), k, splits=SPLITS)
            changed[what][f"{a.name} / {b.name}"] = _round(result)
    sets = [one.head_set for one in stored.values()]
    first = sets[0]
    return {
        "command": "harness-heads discover --model tiny-digits --all-settings --n 400; discovery_stability.py",
        "model": first.provenance["read"],
        "corpus": first.provenance["corpus"],
        "samples": first.provenance["samples"],
        "k": len(first),
        "heads": first.geometry.total,
        "halves": halves,
        "changed": changed,
        "median_shared": {
            "two halves": median(h["cross"] for h in halves.values()),
            "another source": median(r["cross"] for r in changed["source"].values()),
            "another query": median(r["cross"] for r in changed["query"].values()),
        },
        "halves_share_at_least_90_percent": {n: h["cross"] >= WANTED * h["k"] for n, h in halves.items()},
        "full_data_overlap": {"names": list(stored), "shared": matrix(sets).tolist()},
    }


def _own(one: Stored) -> dict[str, Any]:
    scored = one.scored()
    return _round(split_half(scored, scored, len(one.head_set), splits=SPLITS))


def _round(result: SplitHalf) -> dict[str, Any]:
    return {name: round(v, 4) if isinstance(v, float) else v for name, v in asdict(result).items()}


def words(value: dict[str, Any]) -> str:
    """Markdown of the same figures."""
    k = value["k"]
    own = [
        [name, f"{h['cross']:.2f} of {k} ({h['cross'] / k:.0%})", "yes" if h["cross"] >= WANTED * k else "no"]
        for name, h in value["halves"].items()
    ]
    pairs = [
        [what, pair, f"{r['cross']:.2f}", f"{r['ceiling']:.2f}", f"{r['fraction']:.2f}"]
        for what, rows in value["changed"].items()
        for pair, r in rows.items()
    ]
    middle = value["median_shared"]
    return "\n".join(
        [
            "# Discovery on tiny-digits: stability and what the source does",
            "",
            f"{value['samples']} digit strips of the discover split, k = {k} of {value['heads']} heads, weights "
            f"{value['model']['weights']}, {SPLITS} half-splits. Reproduce: `{value['command']}`.",
            "",
            f"Median of {k} heads shared: two halves of the data {middle['two halves']:.2f}, another source "
            f"{middle['another source']:.2f}, another query {middle['another query']:.2f}; uniform sets share "
            f"{k * k / value['heads']:.2f}.",
            "",
            f"## Two halves of the data (wanted: {WANTED:.0%})",
            "",
            tabulate(own, headers=["setting", "shared", "at least 90 %"], tablefmt="github"),
            "",
            "## Changing one factor, across halves",
            "",
            tabulate(pairs, headers=["changed", "pair", "shared", "ceiling", "fraction"], tablefmt="github"),
            "",
            "![overlap of the full-data sets](discovery-overlap.svg)",
            "",
        ]
    )


def main() -> None:
    """Read the runs, write the three files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="folder that discover wrote")
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--ship", action="store_true", help="copy the demo's two sets into the package")
    args = parser.parse_args()
    if args.ship:
        for name in SHIPPED:
            stored = read(args.runs / name)
            stored.head_set.save(shipped_path(stored.head_set.name))
    value = collect(args.runs)
    (args.output / "discovery.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    (args.output / "discovery.md").write_text(words(value), encoding="utf-8")
    overlap = value["full_data_overlap"]
    picture = overlap_picture(np.array(overlap["shared"]), overlap["names"])
    (args.output / "discovery-overlap.svg").write_text(picture, encoding="utf-8")
    print(words(value))


if __name__ == "__main__":
    main()
