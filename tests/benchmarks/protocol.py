"""Time and memory of every statistic of a report, and how they grow with items, controls and settings.

    python tests/benchmarks/protocol.py [--output FILE]

The bar: 12 settings x (1 + 250) sets x 400 items with 10,000 resamples under 10 s of one core and under 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from harness_heads.protocol import statistics as st
from harness_heads.protocol.resampled import Bootstrap

CASES = ((400, 250, 12), (100, 250, 12), (1600, 250, 12), (400, 20, 12), (400, 1000, 12), (400, 250, 3), (400, 250, 24))
"""Items, controls per setting, settings."""
STRIPS, M, PER_LAYER, HEADS, SPLITS = 400, 1152, 32, 100, 200
"""Discovery samples, heads of the model and of a layer, heads of a set, half splits (paper A, Table 20)."""
NAMES = tuple(product("ab", ("cm", "co"), ("ord", "ref"), ("last", "qsp", "out")))
"""Settings, twelve and twelve more; ceilings are taken of pairs that differ in one factor (24 pairs of twelve)."""
BAR_SECONDS, BAR_BYTES = 10.0, 2**30
OUTPUT = Path("reports/benchmarks/statistics.json")


def everything(n: int, r: int, m: int, resamples: int = 10_000) -> int:
    """All statistics of m settings; returns how many tests were made."""
    rng = np.random.default_rng(0)
    item = rng.normal(0, 0.3, (n, 1))
    sets = item + rng.normal(0.05, 0.3, (n, m))
    controls = [item + rng.normal(0, 0.01, (1, r)) + rng.normal(0, 0.3, (n, r)) for _ in range(m)]
    codes = np.arange(n)
    bootstrap = Bootstrap(resamples)
    means = np.array([c.mean(axis=0) for c in controls])
    estimate = st.t_interval(sets, codes)
    p = st.rank_p(estimate.mean, means)
    for tail in ("lower", "two-sided"):
        st.rank_p(estimate.mean, means, tail)
    st.holm(p)
    st.max_t(estimate.mean, means)
    spread = st.control_spread(estimate.mean, means)
    st.prediction_band(means)
    for s in range(m):
        bootstrap.run(sets[:, s], controls[s], codes)
        st.t_interval(controls[s], codes)
        st.sequential_p(float(estimate.mean[s]), means[s], 5)
        st.two_stage_p(float(estimate.mean[s]), means[s], min(20, r))
        st.spearman(means[s], rng.random(r))
        st.equivalence(float(estimate.mean[s]), float(estimate.se[s]), estimate.df, 0.02)
        st.detectable_by_rank(r, float(spread.sd[s]), float(estimate.se[s]), tests=m)
        st.detectable_by_items(n, float(estimate.sd[s]))
        st.mass_statistics(rng.random((r, HEADS)))
    scores = rng.random((STRIPS, m, M))
    chosen = [np.argsort(-scores[:, s].mean(axis=0), kind="stable")[:HEADS] for s in range(m)]
    profiles = [np.bincount(c // PER_LAYER, minlength=M // PER_LAYER) for c in chosen]
    for a, b in combinations(range(m), 2):
        d = sets[:, a] - sets[:, b]
        st.paired_t(d, codes)
        st.wilcoxon_p(d)
        st.sign_flip(d, rng, resamples, codes)
        st.uniform_chance(HEADS, HEADS, M)
        st.layer_chance(profiles[a], profiles[b], [PER_LAYER] * (M // PER_LAYER))
        st.decompose([divmod(int(h), PER_LAYER) for h in chosen[a]], [divmod(int(h), PER_LAYER) for h in chosen[b]])
    own = [st.half_split_overlaps(scores[:, s], scores[:, s], HEADS, SPLITS, rng).mean for s in range(m)]
    for a, b in combinations(range(m), 2):
        if sum(x != y for x, y in zip(NAMES[a], NAMES[b], strict=True)) == 1:
            shared = st.half_split_overlaps(scores[:, a], scores[:, b], HEADS, SPLITS, rng)
            st.ceiling_fraction(shared.mean, own[a], own[b])
    return m


def measure(n: int, r: int, m: int) -> dict[str, Any]:
    """CPU seconds and peak memory of one case, in a process of its own."""
    words = [sys.executable, __file__, "--one", str(n), str(r), str(m)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=one_thread)
    wall, cpu, peak = map(float, done.stdout.split())
    return {"items": n, "controls": r, "settings": m, "wall_s": wall, "cpu_s": cpu, "peak_mib": peak / 2**20}


def _one(n: int, r: int, m: int) -> int:
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF)
    everything(n, r, m)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(time.perf_counter() - start, cpu, after.ru_maxrss * 1024)
    return 0


def main() -> int:
    """Print the table; status 1 if the first case misses the bar (CPU time: other processes do not count)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file of the measurements")
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first so many cases")
    parser.add_argument("--one", type=int, nargs=3, metavar=("N", "R", "M"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return _one(*args.one)
    rows = []
    for case in CASES[: args.cases]:
        row = measure(*case)
        rows.append(row)
        print("  ".join(f"{k} {v:.1f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    first = rows[0]
    value = {
        "what": "every statistic of a report, 10,000 resamples, one process each with one thread",
        "bar": {"cpu_s": BAR_SECONDS, "peak_mib": BAR_BYTES / 2**20, "case": "the first row"},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "machine": platform.machine(),
        "rows": rows,
        "growth": {name: exponents(rows, name) for name in ("items", "controls", "settings")},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    print(args.output)
    return int(first["cpu_s"] > BAR_SECONDS or first["peak_mib"] * 2**20 > BAR_BYTES)


def exponents(rows: list[dict[str, Any]], name: str) -> dict[str, float | None]:
    """Slope of log time and log memory over log size between the smallest and the largest case that differ in one size.

    1 is linear growth; a part that does not grow pulls it below.
    """
    others = [n for n in ("items", "controls", "settings") if n != name]
    line = sorted((r for r in rows if all(r[o] == rows[0][o] for o in others)), key=lambda r: float(r[name]))
    if len(line) < 2:
        return {"cpu": None, "memory": None}
    low, high = line[0], line[-1]
    span = math.log(high[name] / low[name])
    return {k: math.log(high[f] / low[f]) / span for k, f in (("cpu", "cpu_s"), ("memory", "peak_mib"))}


if __name__ == "__main__":
    sys.exit(main())
