"""What reading attention costs beside a plain forward with fused attention, in time and in peak memory.

    python tests/benchmarks/discovery.py [--output reports/benchmarks/discovery.json] [--repeats 5] [--eager]

A Qwen3-VL with random weights (12 text layers of 16 heads) on one image of about 300 and about 3,300 tokens; rows of
the last prompt token, a query span and an answer, as the settings read them. Variants run interleaved in one process,
one thread; times are the process's CPU time, because a shared machine's wall clock measures its other users. Peak
memory is measured in a process of its own for each variant, above the loaded model.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from numpy import median

from harness_heads.discovery.capture import Want, capture
from harness_heads.discovery.loading import versions
from harness_heads.families import family_of

GRIDS = {300: (15, 20), 3300: (55, 60)}
QUESTION, SPAN, ANSWER = 40, 6, 8  # tokens
LIMITS = {
    "time at 300": 1.10,
    "time at 3300": 1.05,
    "memory at 3300": 1.15,
    "all settings": 1.15,
}
SLACK_MB = 5.0  # memory at 300: plain plus captured rows plus this


def build() -> Any:
    """Qwen3-VL with random weights: text 12 x (16 query, 4 key/value heads of 32), vision 1 layer of 64.

    The vision tower is as small as can be: it costs the same with and without reading and would hide the difference.
    """
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(0)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 8192,
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 512,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [],
        },
        image_token_id=8000,
        video_token_id=8001,
        vision_start_token_id=8002,
        vision_end_token_id=8003,
    )
    return Qwen3VLForConditionalGeneration(config).eval()


def prompt(tokens: int, answer: int) -> dict[str, Any]:
    """One prompt: 12 tokens, the image, the question, 5 template tokens, and an answer behind them."""
    rows, columns = GRIDS[tokens]
    draw = torch.Generator().manual_seed(1)
    image = [8002, *[8000] * (rows * columns), 8003]
    words = torch.randint(10, 7000, (12 + QUESTION + 5 + answer,), generator=draw).tolist()
    ids = torch.tensor([[*words[:12], *image, *words[12:]]])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(rows * columns * 4, 3 * 2 * 16 * 16, generator=draw),
        "image_grid_thw": torch.tensor([[1, 2 * rows, 2 * columns]]),
        "mm_token_type_ids": (ids == 8000).int(),
    }


def want_of(inputs: dict[str, Any], answer: int) -> Want:
    """Rows of all three sources, and three regions."""
    length = inputs["input_ids"].shape[1] - answer
    image = (inputs["input_ids"][0] == 8000).nonzero()[:, 0]
    span = torch.arange(length - 5 - SPAN, length - 5)
    rows = torch.cat([span, torch.tensor([length - 1]), torch.arange(length, length + answer)])
    return Want(rows, {"target": image[: len(image) // 6], "image": image, "sink": torch.zeros(1, dtype=torch.long)})


def variants(model: Any, tokens: int, eager: bool) -> dict[str, Callable[[], Any]]:
    """Name -> one run. ``plain`` and ``read`` see the same input; ``prefill`` is the prompt without an answer."""
    family = family_of(model)
    full, bare = prompt(tokens, ANSWER), prompt(tokens, 0)
    want = want_of(full, ANSWER)
    inputs = {name: (full if name != "prefill" else bare) for name in ("plain", "read", "prefill")}

    def forward(name: str) -> Any:
        with torch.no_grad():
            return model(**inputs[name], use_cache=False, logits_to_keep=1)

    def dense() -> Any:
        decoder = model.get_decoder()
        before = decoder.config._attn_implementation
        decoder.config._attn_implementation_internal = "eager"
        try:
            with torch.no_grad():
                return model(**full, use_cache=False, logits_to_keep=1, output_attentions=True)
        finally:
            decoder.config._attn_implementation_internal = before

    out: dict[str, Callable[[], Any]] = {
        "plain": lambda: forward("plain"),
        "read": lambda: capture(model, family, full, [want], [0]),
        "prefill": lambda: forward("prefill"),
    }
    if eager:
        out["eager output_attentions"] = dense
    return out


def peak_mb(name: str, tokens: int) -> float:
    """Peak resident memory of one run above the loaded model, MiB, in a forked process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, f"{_peak_here(name, tokens):.3f}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return float(text)


def _peak_here(name: str, tokens: int) -> float:
    # blocks of 64 kB and more are mapped, and given back at once: else the peak is that of the allocator's fragments
    ctypes.CDLL("libc.so.6").mallopt(-3, 64 * 1024)  # M_MMAP_THRESHOLD
    model = build()
    run = variants(model, tokens, eager=True)[name]
    gc.collect()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    run()
    return (status("VmHWM") - before) / 1024


def status(field: str) -> int:
    """A field of /proc/self/status, KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise SystemExit(f"{field} is not in /proc/self/status; peak memory needs Linux")


def times(tokens: int, repeats: int, eager: bool) -> dict[str, list[float]]:
    """CPU seconds of every variant, interleaved; the slow eager variant once."""
    model = build()
    runs = variants(model, tokens, eager)
    out: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(repeats + 1):
        for name, run in runs.items():
            if name.startswith("eager") and round_ != 1:
                continue
            start = time.process_time()
            run()
            if round_:  # the first round warms up
                out[name].append(time.process_time() - start)
    return out


def compare(tokens: int, repeats: int, eager: bool) -> dict[str, Any]:
    """All figures at one image size."""
    seconds = times(tokens, repeats, eager)
    memory = {name: peak_mb(name, tokens) for name in seconds if name != "prefill"}
    pairs = [r / p for r, p in zip(seconds["read"], seconds["plain"], strict=True)]
    all_settings = [r / p for r, p in zip(seconds["read"], seconds["prefill"], strict=True)]
    rows = SPAN + 1 + ANSWER
    captured = rows * 12 * 16 * (3 * 4 + 2 * 8) / 2**20  # three sums in float32, two positions in int64
    result: dict[str, Any] = {
        "image_tokens": GRIDS[tokens][0] * GRIDS[tokens][1],
        "rows_read": rows,
        "cpu_seconds_median": {name: round(float(median(v)), 4) for name, v in seconds.items()},
        "repeats": {name: len(v) for name, v in seconds.items()},
        "read_over_plain": _spread(pairs),
        "all_sources_over_prefill": _spread(all_settings),
        "peak_mb_above_model": {name: round(v, 1) for name, v in memory.items()},
        "captured_mb": round(captured, 2),
        "read_over_plain_memory": round(memory["read"] / memory["plain"], 3),
    }
    if eager:
        name = "eager output_attentions"
        result["eager_over_plain"] = round(seconds[name][0] / median(seconds["plain"]), 2)
        result["eager_over_plain_memory"] = round(memory[name] / memory["plain"], 1)
    return result


def _spread(ratios: list[float]) -> dict[str, float]:
    return {"median": round(float(median(ratios)), 4), "min": round(min(ratios), 4), "max": round(max(ratios), 4)}


def verdicts(sizes: dict[str, Any]) -> dict[str, Any]:
    """Each limit beside what was measured so far."""
    measured: dict[str, float] = {}
    for name, size in sizes.items():
        measured[f"time at {name}"] = size["read_over_plain"]["median"]
    if "3300" in sizes:
        measured["memory at 3300"] = sizes["3300"]["read_over_plain_memory"]
    measured["all settings"] = max(s["all_sources_over_prefill"]["median"] for s in sizes.values())
    out = {n: {"measured": v, "limit": LIMITS[n], "holds": v <= LIMITS[n]} for n, v in measured.items()}
    if "300" in sizes:
        small = sizes["300"]
        allowed = small["peak_mb_above_model"]["plain"] + small["captured_mb"] + SLACK_MB
        peak = small["peak_mb_above_model"]["read"]
        out["memory at 300"] = {"measured": peak, "limit": round(allowed, 1), "unit": "MiB", "holds": peak <= allowed}
    return out


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("reports/benchmarks/discovery.json"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--eager", action="store_true", help="also output_attentions=True (slow, 10 GB)")
    parser.add_argument("--tokens", type=int, action="append", choices=tuple(GRIDS), help="one size alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    value: dict[str, Any] = {
        "command": "python tests/benchmarks/discovery.py " + " ".join(sys.argv[1:]),
        "machine": {"processor": platform.processor() or platform.machine(), "threads": 1, "versions": versions()},
        "sizes": {},
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    for tokens in args.tokens or GRIDS:
        value["sizes"][str(tokens)] = compare(tokens, args.repeats, args.eager)
        value["limits"] = verdicts(value["sizes"])
        # after every size, so that a run that is stopped leaves what it has
        args.output.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(value, indent=1), flush=True)


if __name__ == "__main__":
    main()
