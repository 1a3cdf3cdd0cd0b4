"""What the wrapper costs: with an empty set beside the host, and with 20 controls beside one run per head set.

    python tests/benchmarks/wrapper.py [--items 200] [--repeats 5]

Empty set: forwards of the engine benchmark's model with and without the intervention's context, interleaved.
Memory: peak of the engine above the loaded model with 21 and with 251 sets (question rows), each in its own process.
Run per set: whole ``lmms_eval`` commands on the embedded model, CPU time of the process with everything that starting
takes; the run of a single set is measured once and counted 21 times.
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
from statistics import median
from typing import Any

import torch
from discovery import status
from engine_setup import MODEL, Letters, head_sets, model, prompt, write_report

from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.heads import empty_set

OUT = Path(__file__).resolve().parents[2] / "reports" / "benchmarks" / "wrapper.json"
CONTROLS = 20


def empty_over_host(repeats: int) -> dict[str, Any]:
    """CPU seconds of a forward inside the context with an empty set, over those of the host alone."""
    made, inputs = model(), prompt()
    engine = Engine(made, Letters(), verify=False)
    nothing = empty_set(MODEL, engine.geometry)
    spent: dict[str, list[float]] = {"host": [], "empty": []}
    for turn in range(repeats + 1):  # the first turn warms up
        for name, seconds in spent.items():
            start = time.process_time()
            with torch.no_grad():
                if name == "host":
                    made(**inputs, use_cache=False, logits_to_keep=1)
                else:
                    with engine.generating(nothing, Condition("mask")):
                        made(**inputs, use_cache=False, logits_to_keep=1)
            if turn:
                seconds.append(time.process_time() - start)
    ratios = [e / h for e, h in zip(spent["empty"], spent["host"], strict=True)]
    return {"median": round(median(ratios), 4), "range": [round(min(ratios), 4), round(max(ratios), 4)]}


def peak_mib(sets: int) -> float:
    """Peak memory of one answer above the loaded model, in a forked process."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        made, inputs = model(), prompt()
        engine = Engine(made, Letters(), verify=False)
        every = head_sets(engine.geometry, sets)
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
        engine.answer(
            inputs, every, keys=[str(i) for i in range(len(every))], conditions=[Condition("mask", rows=("question",))],
            options=["A"], image_sizes=[(512, 512)],
        )  # fmt: skip
        os.write(writer, f"{(status('VmHWM') - before) / 1024:.1f}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.wait()
    return float(text)


def command_seconds(controls: int, items: int) -> float:
    """CPU seconds of one whole command on ``ncs_digits_choose``."""
    with tempfile.TemporaryDirectory() as folder:
        args = f"pretrained=tiny-digits,head_set=tiny-digits/dg-ref-qsp,controls={controls}"
        words = ["--model", "masked_qwen3vl", "--model_args", args, "--tasks", "ncs_digits_choose"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "harness_heads", *words, "--limit", str(items), "--output_path", folder],
            check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    value: dict[str, Any] = {"peak_mib_above_model": {str(n): peak_mib(n) for n in (21, 251)}}
    value["empty_set_over_host"] = empty_over_host(options.repeats)
    print(json.dumps(value), flush=True)
    together, alone = command_seconds(CONTROLS, options.items), command_seconds(0, options.items)
    value["run_per_set_over_one_run"] = {
        "ratio": round((CONTROLS + 1) * alone / together, 2),
        "cpu_seconds": {"one run, 20 controls": round(together, 1), "one set alone": round(alone, 1)},
        "items": options.items,
    }
    print(json.dumps(value, indent=1))
    write_report(options.output, value)


if __name__ == "__main__":
    main()
