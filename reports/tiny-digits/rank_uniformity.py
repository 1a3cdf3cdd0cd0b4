"""Is the rank p of a head set that means nothing uniform?

Draws head sets uniformly from all heads of the embedded model, calls each one "discovered", gives each 20 fresh
layer-matched controls from a disjoint seed stream, computes NCS of all of them on the same items of the *choose* split
and ranks each set among its own controls. Under the null that the method rests on, the rank p takes k/21, k = 1..21,
with equal probability; an exact test (Monte Carlo over the multinomial) of chi-square says whether it did.

    python reports/tiny-digits/rank_uniformity.py --sets 400 --controls 20 --items 50 --out reports/tiny-digits
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from harness_heads import tiny
from harness_heads.controls import draw_controls
from harness_heads.engine import Engine
from harness_heads.heads import Geometry, Head, HeadSet, ModelRef, empty_set
from harness_heads.models.capture import run_through_host
from harness_heads.models.wrapped import wrapped_class
from harness_heads.probes import Probe, probe_from_dict
from harness_heads.protocol.statistics import rank_p
from harness_heads.scoring import drop

TASK = "ncs_digits_choose"
ARMS = ("matched", "mismatched")


@dataclass(frozen=True)
class Prompt:
    """One prepared arm of one item."""

    probe: Probe
    correct: str
    inputs: Mapping[str, torch.Tensor]
    sizes: tuple[tuple[int, int], ...]


def draw(geometry: Geometry, model: ModelRef, k: int, sets: int, controls: int, seed: int) -> list[list[HeadSet]]:
    """``sets`` lists of one uniform set and its controls; the two come from disjoint seed streams."""
    uniform, for_controls = np.random.SeedSequence(seed).spawn(2)
    generator = np.random.default_rng(uniform)
    control_seeds = for_controls.generate_state(sets)
    everything = geometry.all_heads()
    families = []
    for number in range(sets):
        chosen = generator.choice(len(everything), size=k, replace=False)
        heads = tuple(Head(*everything[index]) for index in sorted(chosen))
        parent = HeadSet(f"random-{number}", model, geometry, heads)
        families.append([parent, *draw_controls(parent, "layer", controls, int(control_seeds[number]))])
    return families


def prepare(wrapped: Any, items: int) -> list[Prompt]:
    """The matched and mismatched prompts of the first ``items`` items, as the host makes them."""
    from lmms_eval.tasks import TaskManager, get_task_dict

    from harness_heads.cli.run_arguments import TASKS

    task = get_task_dict([TASK], TaskManager(include_path=str(TASKS)))[TASK]
    task.build_all_requests(limit=items, rank=0, world_size=1)
    wrapped.task_dict[TASK] = task.dataset
    requests = [r for r in task.instances if r.metadata["probe"]["arm"] in ARMS]
    prompts: list[Prompt] = []

    def keep(number: int, inputs: Mapping[str, torch.Tensor], images: Sequence[Any]) -> None:
        request = requests[number]
        probe = probe_from_dict(request.metadata["probe"])
        document = task.dataset[request.arguments[5]][request.arguments[3]]
        prompts.append(Prompt(probe, correct_letter(document), dict(inputs), tuple(image.size for image in images)))

    run_through_host(wrapped.host_generate, wrapped.model, requests, keep)
    return prompts


def correct_letter(document: Mapping[str, Any]) -> str:
    """Letter of the right option of an item."""
    return str(document["letters"][document["correct"]])


def necessity(engine: Engine, prompts: Sequence[Prompt], sets: Sequence[HeadSet]) -> np.ndarray:
    """NCS of every set, float64 (sets,): mean over items of matched drop minus mismatched drop."""
    keys = [str(number) for number in range(len(sets))]
    baseline = empty_set(sets[0].model, sets[0].geometry)
    total = np.zeros(len(sets))
    for prompt in tqdm(prompts, desc="prompts", leave=False):
        (condition,) = prompt.probe.conditions
        answers = engine.answer(
            prompt.inputs,
            [baseline, *sets],
            keys=["empty", *keys],
            conditions=[condition],
            options=prompt.probe.options,
            image_sizes=prompt.sizes,
        ).logprobs[condition.name]
        sign = 1.0 if prompt.probe.arm == "matched" else -1.0
        total += sign * np.array([drop(answers["empty"], answers[key], prompt.correct) for key in keys])
    return total / sum(prompt.probe.arm == "matched" for prompt in prompts)


def uniformity(ranks: np.ndarray, cells: int, simulations: int, generator: np.random.Generator) -> dict[str, float]:
    """Chi-square statistic of rank counts against equal cells, and its exact p (floor 1 / (simulations + 1))."""
    counts = np.bincount(ranks - 1, minlength=cells)
    expected = len(ranks) / cells
    statistic = float(((counts - expected) ** 2 / expected).sum())
    drawn = generator.multinomial(len(ranks), np.full(cells, 1 / cells), size=simulations)
    simulated = ((drawn - expected) ** 2 / expected).sum(1)
    p = (1 + int((simulated >= statistic - 1e-9).sum())) / (simulations + 1)
    return {"chi_square": statistic, "degrees_of_freedom": cells - 1, "exact_p": p}


def main() -> int:
    """Run in blocks of sets, so that a stopped run goes on where it was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--controls", type=int, default=20)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--seed", type=int, default=20_26)
    parser.add_argument("--block", type=int, default=20, help="sets a block; a block is the unit that is resumed")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    masked = wrapped_class("masked", "qwen3_vl")
    wrapped = masked(pretrained=tiny.NAME, controls=0, condition_batch=64)
    families = draw(
        wrapped.engine.geometry, wrapped.reference, arguments.k, arguments.sets, arguments.controls, arguments.seed
    )
    prompts = prepare(wrapped, arguments.items)
    partial = arguments.out / f"rank_uniformity.{arguments.sets}x{arguments.controls}x{arguments.items}.part.json"
    done: list[list[float]] = json.loads(partial.read_text()) if partial.exists() else []
    for start in tqdm(range(len(done), arguments.sets, arguments.block), desc="blocks"):
        block = families[start : start + arguments.block]
        scores = necessity(wrapped.engine, prompts, [heads for family in block for heads in family])
        done += scores.reshape(len(block), -1).tolist()
        partial.write_text(json.dumps(done))
    values = np.array(done)
    p = np.array([rank_p(row[0], row[1:]) for row in values], dtype=float)
    ranks = np.rint(p * (arguments.controls + 1)).astype(int)
    result = {
        "command": "python reports/tiny-digits/rank_uniformity.py "
        f"--sets {arguments.sets} --controls {arguments.controls} --items {arguments.items} --seed {arguments.seed}",
        "task": TASK,
        "k": arguments.k,
        "counts": np.bincount(ranks - 1, minlength=arguments.controls + 1).tolist(),
        **uniformity(ranks, arguments.controls + 1, 100_000, np.random.default_rng(arguments.seed)),
        "share_at_or_below_.05": float((p <= 0.05).mean()),
        "ncs_of_sets": {"mean": float(values[:, 0].mean()), "sd": float(values[:, 0].std(ddof=1))},
        "ncs_of_controls": {"mean": float(values[:, 1:].mean()), "sd": float(values[:, 1:].std(ddof=1))},
        "rank_p": p.round(6).tolist(),
    }
    (arguments.out / "rank_uniformity.json").write_text(json.dumps(result, indent=1) + "\n")
    partial.unlink()
    print(json.dumps({name: value for name, value in result.items() if name != "rank_p"}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
