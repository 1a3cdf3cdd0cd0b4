"""Memory of large samples, in a process of its own: the benchmark's bar of 1 GiB for 200 MB, in proportion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "samples.py"


def test_samples_stream_in_proportion_to_the_bar(tmp_path: Path) -> None:
    """8 MB of samples: reading adds less than 8/200 of 1 GiB to what the imports hold."""
    output = tmp_path / "samples.json"
    words = [sys.executable, str(BENCHMARK), "--megabytes", "8", "--output", str(output)]
    subprocess.run(words, check=True, capture_output=True)
    value = json.loads(output.read_text(encoding="utf-8"))
    peak = {row["what"]: row["peak_mib"] for row in value["rows"]}
    assert value["bytes"] > 8e6
    assert peak["read"] - peak["import"] < value["bytes"] / 200e6 * 1024
    assert peak["report"] < 1024
