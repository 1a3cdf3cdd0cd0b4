"""Time and memory of reading a large samples file and of the report over it.

    python tests/benchmarks/samples.py [--megabytes 200] [--output FILE]

The bar: a samples file of 200 MB streams in under 1 GiB. The file is really built, in a temporary folder, and read by a
process of its own, whose peak memory the operating system reports.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "protocol"))
import synthetic as syn

OUTPUT = Path("reports/benchmarks/samples.json")
BAR_BYTES = 2**30
WORLD = syn.World(items=8, controls=250)
"""Two sets of 250 controls each: about 0.5 MB an item."""


def build(folder: Path, size: int) -> Path:
    """A run folder whose samples file has at least ``size`` bytes: the world's items again and again under new ids."""
    syn.write_ncs(folder, WORLD)
    path = syn.samples_file(folder)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    each = path.stat().st_size / len(lines)
    items = int(size / each) + 1
    with path.open("w", encoding="utf-8") as file:
        for i in range(items):
            line = lines[i % len(lines)]
            line["doc_id"] = i
            line["record"] |= {"item": f"{i:016x}", "index": i, "n_planned": items, "cluster": f"image-{i}"}
            # every item has a picture of its own
            line["record"]["images"] = {arm: [f"{arm}-{i}"] for arm in line["record"]["images"]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return folder


def measure(folder: Path, what: str) -> dict[str, Any]:
    """CPU seconds and peak memory of ``import`` (nothing read), ``read`` or ``report``."""
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--one", str(folder), what]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=one_thread)
    cpu, peak = map(float, done.stdout.split())
    return {"what": what, "cpu_s": cpu, "peak_mib": peak / 2**20}


def _one(folder: Path, what: str) -> int:
    from harness_heads.protocol.evidence import load_evidence
    from harness_heads.protocol.report import write_report

    start = time.process_time()
    if what != "import":
        evidence = load_evidence([folder])
        if what == "report":
            write_report(evidence, folder / "report")
    print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return 0


def main() -> int:
    """Print and store; status 1 if reading misses the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return _one(Path(args.one[0]), args.one[1])
    with tempfile.TemporaryDirectory() as name:
        folder = build(Path(name), int(args.megabytes * 1e6))
        size = syn.samples_file(folder).stat().st_size
        rows = [measure(folder, what) for what in ("import", "read", "report")]
    for row in rows:
        print(f"{row['what']}: {row['cpu_s']:.1f} s CPU, peak {row['peak_mib']:.0f} MiB")
    value = {"bytes": size, "bar_mib": BAR_BYTES / 2**20, "sets": 1 + 2 * (1 + WORLD.controls), "rows": rows}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return int(any(row["peak_mib"] * 2**20 > BAR_BYTES for row in rows))


if __name__ == "__main__":
    sys.exit(main())
