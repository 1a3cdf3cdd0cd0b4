"""Cost of the engine on a GPU: a random model of Qwen3-VL-8B's shape in bfloat16, many sets, two image sizes.

    python tests/benchmarks/gpu.py                # on a machine with a GPU; about 20 GB of its memory
    python tests/benchmarks/gpu.py --shape small --device cpu --sets 2 --image-sides 4 --repeats 1   # to try it

Per image size, number of sets and row scope: seconds per item, peak memory beyond the weights, the distance to the
public loop (some of its forwards, scaled), how much of the ratio of FLOPs that distance reaches (``share_of_floor``),
and the share of what plain matrix products of the same machine reach (``share_of_matmul``). Runs are interleaved, wall
clock between synchronisations, medians; nothing is asserted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engine import floor_of, flops, median, spread
from engine_setup import LARGE, SMALL, Letters, NaiveLoop, Shape, head_sets, model, prompt, write_report

from harness_heads.conditions import Condition
from harness_heads.engine import Engine

OUT = Path(__file__).resolve().parents[2] / "reports" / "benchmarks" / "gpu.json"
SHAPES = {"large": LARGE, "small": SMALL}
SCOPES = ("all", "question", "last")
PIXELS = 32  # of an image token's side


class Device:
    """Clock and memory of one device."""

    def __init__(self, name: str) -> None:
        self.name, self.cuda = name, name.startswith("cuda")

    def seconds(self, run: Callable[[], Any]) -> float:
        """Wall clock of ``run``, with all of its kernels done."""
        self._wait()
        start = time.perf_counter()
        run()
        self._wait()
        return time.perf_counter() - start

    def peak_gib(self, run: Callable[[], Any]) -> float | None:
        """Memory that ``run`` allocates at its peak beyond what is held now; not known on a CPU."""
        if not self.cuda:
            run()
            return None
        self._wait()
        torch.cuda.reset_peak_memory_stats(self.name)
        held = torch.cuda.memory_allocated(self.name)
        run()
        self._wait()
        return round((torch.cuda.max_memory_allocated(self.name) - held) / 2**30, 3)

    def matmul_ceiling(self, dtype: torch.dtype, side: int) -> float:
        """FLOPs per second of square matrix products, the best of ten."""
        left, right = (torch.randn(side, side, device=self.name, dtype=dtype) for _ in range(2))
        left @ right
        return 2 * side**3 / min(self.seconds(lambda: left @ right) for _ in range(10))

    def card(self) -> str:
        """What the device calls itself."""
        return torch.cuda.get_device_name(self.name) if self.cuda else "CPU"

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.name)


def measure(
    made: Any, shape: Shape, device: Device, ceiling: float, side: int, count: int, scope: str, options: Any
) -> dict[str, Any]:
    """One row of the table: ``count`` sets and the baseline on one image of side x side tokens."""
    inputs = {name: value.to(device.name) for name, value in prompt(side).items()}
    inputs["pixel_values"] = inputs["pixel_values"].to(made.dtype)
    size = [(side * PIXELS, side * PIXELS)]
    engine = Engine(made, Letters(), verify=False, chunk=options.chunk)
    sets = head_sets(engine.geometry, count, shape.first_touched)
    keys = [str(i) for i in range(len(sets))]
    condition = Condition("mask", rows=(scope,))
    layout = engine.layout(inputs, size)
    loop = NaiveLoop(made, inputs, layout.rows(condition.rows).to(device.name))
    looped = sets[1 : 1 + options.loop_sets]

    def run_engine() -> Any:
        return engine.answer(
            inputs, sets, keys=keys, conditions=[condition], options=["A", "B", "C", "D"], image_sizes=size
        )

    def run_clean() -> Any:
        with torch.no_grad():
            return made(**inputs, use_cache=False, logits_to_keep=1)

    runs = {"engine": run_engine, "clean": run_clean, "loop": lambda: loop(looped)}
    peak = {name: device.peak_gib(run) for name, run in runs.items()}  # warms every kernel, too
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            seconds[name].append(device.seconds(run) * (count / len(looped) if name == "loop" else 1))
    spent, clean_flops = flops(run_engine), flops(run_clean)
    first = int(layout.rows(condition.rows)[0]) if scope != "all" else int(layout.image_positions[0])
    floor = floor_of(clean_flops, made.config.text_config, sets, layout.length - first, layout.length)
    ratio = median(seconds["loop"]) / median(seconds["engine"])
    return {
        "image_tokens": side**2,
        "sets": count,
        "rows": scope,
        "seconds_per_item": round(median(seconds["engine"]), 4),
        "peak_memory_gib": peak["engine"],
        "peak_memory_gib_of_a_forward": peak["clean"],
        "naive_over_engine": round(ratio, 3),
        "engine_over_forward": round(median(seconds["engine"]) / median(seconds["clean"]), 3),
        "flops_over_floor": round(spent / floor, 4),
        "share_of_floor": round(ratio / (count * flops(lambda: loop(looped[:1])) / floor), 3),
        "share_of_matmul": round(spent / median(seconds["engine"]) / ceiling, 3),
        "seconds": {name: {"median": round(median(v), 4), "range": spread(v)} for name, v in seconds.items()},
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="large")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--sets", type=int, nargs="+", default=[20, 250], help="random sets beside the first one")
    parser.add_argument("--image-sides", type=int, nargs="+", default=[16, 32], help="in image tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--loop-sets", type=int, default=5, help="sets that the loop runs; scaled to all of them")
    parser.add_argument("--chunk", type=int, help="head sets that run together; by default the engine decides")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU here: nothing measured")
        return
    device, dtype, shape = Device(options.device), getattr(torch, options.dtype), SHAPES[options.shape]
    ceiling = device.matmul_ceiling(dtype, 8192 if device.cuda else 1024)
    made = model(shape, options.device, dtype)
    rows = []
    for side in options.image_sides:
        for others in options.sets:
            for scope in SCOPES:
                rows.append(measure(made, shape, device, ceiling, side, 1 + others, scope, options))
                print(
                    "{image_tokens:5} image tokens, {sets:3} sets, {rows:8} {seconds_per_item:8.4f} s  "
                    "{peak_memory_gib} GiB  naive/engine {naive_over_engine:7.2f}, {share_of_floor:.2f} of the "
                    "floor's; {share_of_matmul:.2f} of matmul".format(**rows[-1]),
                    flush=True,
                )
    report = {
        "rows": rows,
        "card": device.card(),
        "matmul_tflops": round(ceiling / 1e12, 2),
        "configuration": {
            "model": f"random Qwen3-VL, {options.shape}", "text": shape.text, "vision": shape.vision,
            "dtype": options.dtype, "heads_per_set": 30, "first_touched_layer": shape.first_touched,
            "repeats": options.repeats, "loop_sets_run": options.loop_sets, "chunk": options.chunk,
            "baseline_in_batch": True, "dose": True, "verify": False,
        },
    }  # fmt: skip
    write_report(options.output, report)


if __name__ == "__main__":
    main()
