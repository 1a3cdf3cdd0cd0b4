"""Cost of the engine against the public loop (one eager forward per head set), and against the least FLOPs possible.

    python tests/benchmarks/engine.py                 # as `make bench`: all 21 sets of the loop, five repeats
    python tests/benchmarks/engine.py --loop-sets 3   # the loop on three sets, scaled to 21; for busy machines
    python tests/benchmarks/engine.py --keep-freed-memory --output reports/benchmarks/engine-kept-memory.json

Runs are interleaved in one process, the loop in slices with a run of everything else beside each, and the median is
reported with its range. By default the C library's allocator is as every process has it, and page faults cost the loop
and the engine about a tenth of their time, more in some runs than in others; ``--keep-freed-memory`` spares all sides
them. The clock is the CPU time of this process, so that other work on the machine disturbs ratios little; nothing is
asserted. ``ratio_at_the_floor`` is what an engine could reach that does the least FLOPs at the rate
of the clean forward: how much of ``naive_over_engine`` is the machine's own ratio of eager to fused attention.
FLOPs are counted by torch's FlopCounterMode on both sides, with the CPU's fused attention counted as the full rectangle
of scores.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engine_setup import LAYERS, Letters, NaiveLoop, head_sets, model, prompt, write_report
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from harness_heads.allocator import keep_freed_memory
from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.heads import HeadSet

OUT = Path(__file__).resolve().parents[2] / "reports" / "benchmarks" / "engine.json"
SIZE = [(512, 512)]
SETS = 21
SCOPES = ("all", "question", "last")
SLICES = 3  # the loop takes as long as many engine runs; a machine's pace drifts meanwhile


def flops(run: Callable[[], Any]) -> int:
    """FLOPs of ``run``; fused attention on a CPU is not known to torch's counter and is added to it."""

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    fused = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=fused) as counter:
        run()
    return int(counter.get_total_flops())


def floor_of(clean: int, config: Any, sets: list[HeadSet], rows: int, length: int) -> int:
    """Least FLOPs: the clean pass, and per set the rows that can differ from its first touched layer on.

    In that layer queries, keys, values and untouched heads are the clean pass's; in the last layer keys and values of
    all rows and everything else of one row are needed.
    """
    d, inter, width = config.hidden_size, config.intermediate_size, config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    into, out, mlp = 2 * d * (width + 2 * kv), 2 * width * d, 6 * d * inter
    attention = 4 * length * width
    total = clean
    earliest = min(head.layer for heads in sets for head in heads)
    for heads in sets:
        joins = min((head.layer for head in heads), default=earliest)
        touched = sum(head.layer == joins for head in heads) / config.num_attention_heads
        for layer in range(joins, config.num_hidden_layers):
            last = layer == config.num_hidden_layers - 1
            part = 1 if last else rows
            if layer == joins:
                total += int(part * (attention * touched + out + mlp))
            elif last:
                total += rows * 4 * d * kv + 2 * d * width + attention + out + mlp
            else:
                total += part * (into + attention + out + mlp)
        total += 2 * d * config.vocab_size
    return total


def median(values: list[float]) -> float:
    return statistics.median(values)


def spread(values: list[float]) -> list[float]:
    return [round(min(values), 4), round(max(values), 4)]


def measure(scope: str, repeats: int, loop_sets: int, clock: Callable[[], float]) -> dict[str, Any]:
    """One row of the table."""
    made, inputs = model(), prompt()
    engine = Engine(made, Letters(), verify=False)
    sets = head_sets(engine.geometry, SETS)
    keys = [str(i) for i in range(len(sets))]
    condition = Condition("mask", rows=(scope,))
    layout = engine.layout(inputs, SIZE)
    loop = NaiveLoop(made, inputs, layout.rows(condition.rows))

    def run_engine() -> Any:
        return engine.answer(
            inputs, sets, keys=keys, conditions=[condition], options=["A", "B", "C", "D"], image_sizes=SIZE
        )

    def run_clean() -> Any:
        with torch.no_grad():
            return made(**inputs, use_cache=False, logits_to_keep=1)

    def run_eager() -> Any:
        decoder = made.get_decoder()
        before, decoder.config._attn_implementation_internal = decoder.config._attn_implementation, "eager"
        try:
            return run_clean()
        finally:
            decoder.config._attn_implementation_internal = before

    looped = sets[1 : 1 + loop_sets]
    runs = {"clean": run_clean, "eager": run_eager, "engine": run_engine}
    answers = run_engine()
    logprobs = loop(looped).log_softmax(-1)[:, 11].tolist()
    gap = max(abs(v - answers.logprobs[condition.name][str(i + 1)]["A"]) for i, v in enumerate(logprobs))
    seconds: dict[str, list[float]] = {name: [] for name in (*runs, "loop")}

    def timed(run: Callable[[], Any]) -> float:
        start = clock()
        run()
        return clock() - start

    for _ in range(repeats):
        spent = 0.0
        for part in range(SLICES):
            for name, run in runs.items():
                seconds[name].append(timed(run))
            if some := looped[part::SLICES]:
                spent += timed(lambda some=some: loop(some))
        seconds["loop"].append(spent * SETS / loop_sets)
    clean_flops, engine_flops = flops(run_clean), flops(run_engine)
    first = int(layout.rows(condition.rows)[0]) if scope != "all" else int(layout.image_positions[0])
    rows = layout.length - first
    text = made.config.text_config
    floor = floor_of(clean_flops, text, sets, rows, layout.length)
    return {
        "rows": scope,
        "naive_over_engine": round(median(seconds["loop"]) / median(seconds["engine"]), 3),
        "engine_over_forward": round(median(seconds["engine"]) / median(seconds["clean"]), 3),
        "flops_over_floor": round(engine_flops / floor, 4),
        "flops_over_floor_without_baseline": round(
            engine_flops / floor_of(clean_flops, text, sets[1:], rows, layout.length), 4
        ),
        "naive_flops_over_engine_flops": round(SETS * flops(lambda: loop(sets[1:2])) / engine_flops, 3),
        "ratio_at_the_floor": round(median(seconds["loop"]) / (median(seconds["clean"]) * floor / clean_flops), 3),
        "naive_over_eager_forwards": round(median(seconds["loop"]) / (SETS * median(seconds["eager"])), 3),
        "eager_over_sdpa_forward": round(median(seconds["eager"]) / median(seconds["clean"]), 3),
        "seconds": {name: {"median": round(median(v), 4), "range": spread(v)} for name, v in seconds.items()},
        "replayed_rows": rows,
        "mode": answers.numerics["mode"],
        "largest_gap_in_logprob": gap,
    }


def many_sets(count: int) -> dict[str, float]:
    """FLOPs over the floor with ``count`` sets, by rows (counted, not timed)."""
    made, inputs = model(), prompt()
    engine = Engine(made, Letters(), verify=False)
    sets = head_sets(engine.geometry, count)
    layout = engine.layout(inputs, SIZE)
    with torch.no_grad():
        clean = flops(lambda: made(**inputs, use_cache=False, logits_to_keep=1))
    found = {}
    for scope in SCOPES:
        condition = Condition("mask", rows=(scope,))
        keys = [str(i) for i in range(len(sets))]
        spent = flops(
            lambda condition=condition, keys=keys: engine.answer(
                inputs, sets, keys=keys, conditions=[condition], options=["A"], image_sizes=SIZE
            )
        )
        rows = layout.length - int(layout.rows(condition.rows)[0])
        found[scope] = round(spent / floor_of(clean, made.config.text_config, sets, rows, layout.length), 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--loop-sets", type=int, default=SETS, help="sets that the loop runs; scaled to 21")
    parser.add_argument("--many", type=int, default=251, help="sets of the FLOP count with many sets; 0 leaves it out")
    parser.add_argument("--output", type=Path, default=OUT)
    parser.add_argument("--keep-freed-memory", action="store_true", help="no side pays page faults, as in our launcher")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = options.keep_freed_memory and keep_freed_memory()
    rows = []
    for scope in SCOPES:
        rows.append(measure(scope, options.repeats, options.loop_sets, time.process_time))
        row = rows[-1]
        print(
            f"{scope:9} naive/engine {row['naive_over_engine']:6.2f}  "
            f"engine/forward {row['engine_over_forward']:5.2f}  FLOPs/floor {row['flops_over_floor']:.3f}  "
            f"(at the floor {row['ratio_at_the_floor']:.2f}; "
            f"loop {row['naive_over_eager_forwards']:.2f} x 21 eager forwards, "
            f"eager forward {row['eager_over_sdpa_forward']:.2f} x sdpa)",
            flush=True,
        )
    report = {
        "rows": rows,
        "many_sets": {"sets": options.many, "flops_over_floor": many_sets(options.many)} if options.many else None,
        "configuration": {
            "model": "random Qwen3-VL, 12 text layers of width 512, 8 vision layers of width 256",
            "layers": LAYERS, "sets": SETS, "heads_per_set": 30, "image_tokens": 256, "text_tokens": 75,
            "dtype": "float32", "threads": 1, "repeats": options.repeats, "loop_sets_run": options.loop_sets,
            "clock": "CPU time of the process", "baseline_in_batch": True, "dose": True, "verify": False,
            "freed_memory_kept": kept,
        },
        "machine": {"processor": platform.processor() or platform.machine(), "system": platform.system()},
    }  # fmt: skip
    write_report(options.output, report)


if __name__ == "__main__":
    main()
