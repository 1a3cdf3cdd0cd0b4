"""The engine beside a careful user of general tools: vision once, layers before the first touched one once.

    python tests/benchmarks/peers.py                  # nnsight is measured where it is installed (the bench extra)
    python tests/benchmarks/peers.py --repeats 3

The peer runs the prompt once, keeps the hidden states that enter the first touched layer, and runs the layers from
there on anew for each head set with a mask of its own in the touched layers. It does so once by plain forward hooks and
once through nnsight. CPU time of the process, interleaved, medians; nothing is asserted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from engine_setup import FIRST_TOUCHED, HEADS, IMAGE, Letters, head_sets, model, prompt, write_report
from torch import Tensor, nn

from harness_heads.allocator import keep_freed_memory
from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.heads import HeadSet

OUT = Path(__file__).resolve().parents[2] / "reports" / "benchmarks" / "peers.json"
SETS, SIZE, SCOPES = 21, [(512, 512)], ("all", "question", "last")


class Upper(nn.Module):
    """The decoder from the first touched layer on, as a module of its own."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        decoder = whole.get_decoder()
        self.layers = nn.ModuleList(decoder.layers[FIRST_TOUCHED:])
        self.norm, self.head = decoder.norm, whole.get_output_embeddings()

    def forward(self, hidden: Tensor, **arguments: Any) -> Tensor:
        """Logits (V,) of the final row from hidden states (1, T, d)."""
        for layer in self.layers:
            hidden = layer(hidden, **arguments)
        logits: Tensor = self.head(self.norm(hidden[:, -1]))[0]
        return logits


class Careful:
    """One clean pass, then the upper layers once per head set."""

    def __init__(self, whole: Any, inputs: dict[str, Tensor], rows: Tensor) -> None:
        self.whole, self.inputs, self.upper = whole, inputs, Upper(whole)
        length = inputs["input_ids"].shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        cut = torch.zeros(length, length, dtype=torch.bool)
        cut[rows] = inputs["input_ids"][0] == IMAGE
        self.causal, self.masked = causal, causal & ~cut

    def entering(self) -> tuple[Tensor, dict[str, Any]]:
        """What enters the first touched layer in the clean pass."""
        kept: list[tuple[Tensor, dict[str, Any]]] = []
        layer = self.whole.get_decoder().layers[FIRST_TOUCHED]
        hook = layer.register_forward_pre_hook(lambda _, args, kwargs: kept.append((args[0], kwargs)), with_kwargs=True)
        with torch.no_grad():
            self.whole(**self.inputs, use_cache=False, logits_to_keep=1)
        hook.remove()
        hidden, arguments = kept[0]
        return hidden, {**arguments, "attention_mask": self.causal[None, None]}

    def masks(self, heads: HeadSet) -> dict[int, Tensor]:
        """Mask (1, H, T, T) of every touched layer, counted from the first touched one."""
        found: dict[int, Tensor] = {}
        for layer, head in heads:
            if layer - FIRST_TOUCHED not in found:
                found[layer - FIRST_TOUCHED] = self.causal.repeat(1, HEADS, 1, 1)
            found[layer - FIRST_TOUCHED][0, head] = self.masked
        return found

    def by_hooks(self, sets: list[HeadSet]) -> Tensor:
        """Logits (S, V)."""
        hidden, arguments = self.entering()
        out = []
        for heads in sets:
            with torch.no_grad(), _masked(self.upper, self.masks(heads)):
                out.append(self.upper(hidden, **arguments))
        return torch.stack(out)

    def by_nnsight(self, sets: list[HeadSet]) -> Tensor:
        """Logits (S, V)."""
        from nnsight import NNsight

        traced = NNsight(self.upper)
        hidden, arguments = self.entering()
        out = []
        for heads in sets:
            masks = self.masks(heads)
            with torch.no_grad(), traced.trace(hidden, **arguments):
                for layer in sorted(masks):
                    attention = traced.layers[layer].self_attn
                    positional, named = attention.inputs
                    attention.inputs = (positional, {**named, "attention_mask": masks[layer]})
                logits = traced.output.save()
            out.append(logits)
        return torch.stack(out)


@contextmanager
def _masked(upper: Upper, masks: dict[int, Tensor]) -> Iterator[None]:
    def replacing(mask: Tensor) -> Callable[..., Any]:
        return lambda _, args, kwargs: (args, {**kwargs, "attention_mask": mask})

    hooks = [
        upper.layers[layer].self_attn.register_forward_pre_hook(replacing(mask), with_kwargs=True)
        for layer, mask in masks.items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def measure(scope: str, repeats: int) -> dict[str, Any]:
    """One row of the table."""
    made, inputs = model(), prompt()
    engine = Engine(made, Letters(), verify=False)
    sets = head_sets(engine.geometry, SETS)
    keys = [str(i) for i in range(len(sets))]
    condition = Condition("mask", rows=(scope,))
    careful = Careful(made, inputs, engine.layout(inputs, SIZE).rows(condition.rows))
    answers: list[Any] = []

    def run_engine() -> None:
        answers[:] = [
            engine.answer(inputs, sets, keys=keys, conditions=[condition], options=["A"], image_sizes=SIZE).logprobs[
                condition.name
            ]
        ]

    runs: dict[str, Callable[[], Any]] = {"engine": run_engine, "hooks": lambda: careful.by_hooks(sets[1:])}
    if importlib.util.find_spec("nnsight") is not None:
        runs["nnsight"] = lambda: careful.by_nnsight(sets[1:])
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    gaps: dict[str, float] = {}
    for turn in range(repeats + 1):  # the first turn warms up, and compares
        for name, run in runs.items():
            start = time.process_time()
            logits = run()
            spent = time.process_time() - start
            if turn:
                seconds[name].append(spent)
            elif logits is not None:
                logprobs = logits.log_softmax(-1)[:, 11].tolist()
                gaps[name] = max(abs(v - answers[0][str(i + 1)]["A"]) for i, v in enumerate(logprobs))
    ratios = {
        f"{name}_over_engine": {
            "median": round(median(seconds[name]) / median(seconds["engine"]), 3),
            "range": [
                round(f(a / b for a, b in zip(seconds[name], seconds["engine"], strict=True)), 3) for f in (min, max)
            ],
        }
        for name in runs
        if name != "engine"
    }
    return {"rows": scope, **ratios, "seconds": {k: round(median(v), 4) for k, v in seconds.items()}, "gaps": gaps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=OUT)
    parser.add_argument("--keep-freed-memory", action="store_true", help="no side pays page faults, as in our launcher")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = options.keep_freed_memory and keep_freed_memory()
    if importlib.util.find_spec("nnsight") is None:
        print("nnsight is not installed (pip install '.[bench]'): the same schedule by plain hooks alone")
    rows = []
    for scope in SCOPES:
        rows.append(measure(scope, options.repeats))
        print(json.dumps(rows[-1]), flush=True)
    write_report(options.output, {"sets": SETS, "repeats": options.repeats, "freed_memory_kept": kept, "rows": rows})


if __name__ == "__main__":
    main()
