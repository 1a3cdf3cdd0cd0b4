"""The GPU benchmark as a script, on a small model and a CPU: what it counts must hold anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_gpu_benchmark_runs_on_a_small_model(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    words = ["--shape", "small", "--device", "cpu", "--dtype", "float32", "--sets", "1", "3", "--image-sides", "4"]
    words += ["--repeats", "1", "--loop-sets", "2", "--output", str(output)]
    subprocess.run([sys.executable, str(BENCHMARKS / "gpu.py"), *words], check=True, capture_output=True)
    value = json.loads(output.read_text(encoding="utf-8"))
    assert [(row["sets"], row["rows"]) for row in value["rows"]] == [
        (count, rows) for count in (2, 4) for rows in ("all", "question", "last")
    ]
    for row in value["rows"]:
        # the counted work: within 5 % of what cannot be saved, below it where the final layer's other rows are left out
        assert 0.8 < row["flops_over_floor"] < 1.05
        assert row["image_tokens"] == 16
