"""Train the embedded model: ``python -m harness_heads.tiny.train --seed 1 --out DIR``.

Scheduled by steps, seeded, resumable: a run that was stopped goes on from its last checkpoint, with the numbers it
would have had (each step draws its batch from a generator made of the seed and the step).
"""

import argparse
import ctypes
import dataclasses
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLForConditionalGeneration

from .architecture import build_model
from .augment import Bank, build_bank
from .batches import make_batch, make_pictures
from .encode import Encoder
from .lean import Lean
from .losses import Losses, look_losses, measure_losses
from .measure import Necessity, layer_matched, make_pairs, rank_scores, top
from .processor import build_processor
from .recipe import Recipe, alignment, learning_rate, sparsity

TOP = 8
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
LOG_EVERY, MONITOR_EVERY, SAVE_EVERY = 50, 200, 200


def make_optimizer(model: Qwen3VLForConditionalGeneration, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW; gains and biases are not decayed, the patch embedding learns more slowly."""
    patch = model.model.visual.patch_embed.proj.weight
    matrices = [p for p in model.parameters() if p.ndim > 1 and p is not patch]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": recipe.decay, "factor": 1.0},
        {"params": vectors, "weight_decay": 0.0, "factor": 1.0},
        {"params": [patch], "weight_decay": recipe.decay, "factor": recipe.patch_rate},
    ]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98))


def total_loss(losses: Losses, recipe: Recipe, step: int) -> torch.Tensor:
    """The weighted sum of the terms at a step."""
    fade = alignment(recipe, step)
    return (
        losses.answers
        + fade * (recipe.align * losses.align + recipe.place * losses.place)
        + sparsity(recipe, step) * losses.sparse
    )


class Monitor:
    """Looks at cuts and ranked heads on training digits only, drawn apart from the batches."""

    def __init__(self, lean: Lean, encoder: Encoder, bank: Bank, seed: int) -> None:
        self._lean, self._encoder, self._bank, self._seed = lean, encoder, bank, seed

    def look(self) -> dict[str, Any]:
        """Headroom, what each layer's cut leaves of it, NCS of the top heads and of ten layer-matched sets."""
        rng = np.random.default_rng([self._seed, 1])
        necessity = Necessity(self._lean, self._encoder, make_pairs(self._bank, self._encoder, 48, rng))
        scores = rank_scores(self._lean, self._encoder, self._bank, 12, rng)
        chosen, last = top(scores.referring, TOP), top(scores.ordinal_last, TOP)
        controls = [necessity.score(layer_matched(chosen, rng)) for _ in range(10)]
        return {
            "match": round(float(necessity.match.mean()), 3),
            "mismatch": round(float(necessity.mismatch.mean()), 3),
            "kept": [round(necessity.kept(layer), 3) for layer in range(len(scores.referring))],
            "qsp_heads": [list(head) for head in chosen],
            "qsp_mass": [round(float(scores.referring[head]), 3) for head in chosen],
            "qsp_ncs": round(necessity.score(chosen), 4),
            "control_mean": round(float(np.mean(controls)), 4),
            "control_max": round(float(np.max(controls)), 4),
            "last_heads": [list(head) for head in last],
            "last_ncs": round(necessity.score(last), 4),
        }


class Run:
    """One training run in one folder."""

    def __init__(self, seed: int, recipe: Recipe, out: Path) -> None:
        self.seed, self.recipe, self.out = seed, recipe, out
        self.processor = build_processor()
        self.encoder = Encoder(self.processor.tokenizer)
        self.model = build_model(self.processor.tokenizer, seed, recipe.mimetic)
        self.optimizer = make_optimizer(self.model, recipe)
        self.lean = Lean(self.model, self.encoder.prefix, self.encoder.vision_end)
        self.bank = build_bank("train", recipe.renders, augment=True, rng=np.random.default_rng([seed, 0]))
        self.step, self.seconds = 0, 0.0
        out.mkdir(parents=True, exist_ok=True)

    def _log(self, record: dict[str, Any]) -> None:
        line = json.dumps(record)
        print(line, flush=True)
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def save(self) -> None:
        """Write the model folder and the optimizer's state (safetensors), the counter last."""
        folder = self.out / "model"
        self.model.save_pretrained(folder)
        self.processor.save_pretrained(folder)
        state = {}
        for i, entry in self.optimizer.state_dict()["state"].items():
            for key, value in entry.items():
                state[f"{i}.{key}"] = torch.as_tensor(value).clone()
        save_file(state, self.out / "optimizer.safetensors")
        counter = {"step": self.step, "seconds": round(self.seconds, 1)}
        (self.out / "progress.json").write_text(json.dumps(counter), encoding="utf-8")

    def resume(self) -> None:
        """Go on from the folder's last checkpoint, if it has one."""
        counter = self.out / "progress.json"
        if counter.exists():
            progress = json.loads(counter.read_text(encoding="utf-8"))
            self.step, self.seconds = progress["step"], progress["seconds"]
        self._log({"seed": self.seed, "from_step": self.step, "recipe": dataclasses.asdict(self.recipe)})
        if not counter.exists():
            return
        saved = Qwen3VLForConditionalGeneration.from_pretrained(self.out / "model")
        self.model.load_state_dict(saved.state_dict())
        state: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, value in load_file(self.out / "optimizer.safetensors").items():
            number, key = name.split(".", 1)
            state[int(number)][key] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": dict(state)})

    def train(self, until: int | None = None) -> None:
        """Run to the recipe's last step, or stop and save after step ``until``, logging and saving on the way."""
        end = self.recipe.steps if until is None else min(until, self.recipe.steps)
        monitor = Monitor(self.lean, self.encoder, self.bank, self.seed)
        right: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        sums: dict[str, float] = defaultdict(float)
        while self.step < end:
            begun = time.perf_counter()
            losses = self._update()
            self.seconds += time.perf_counter() - begun
            self.step += 1
            for name in ("answers", "align", "place", "sparse"):
                sums[name] += float(getattr(losses, name).detach()) / LOG_EVERY
            for task, (good, asked) in losses.right.items():
                right[task][0] += good
                right[task][1] += asked
            last = self.step == end
            if self.step % LOG_EVERY == 0 or last:
                record: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds)}
                record |= {name: round(value, 4) for name, value in sums.items()}
                record["right"] = {task: round(good / asked, 3) for task, (good, asked) in sorted(right.items())}
                if self.step % MONITOR_EVERY == 0 or last:
                    record |= monitor.look()
                self._log(record)
                right.clear()
                sums.clear()
            if self.step % SAVE_EVERY == 0 or last:
                self.save()

    def _update(self) -> Losses:
        rng = np.random.default_rng([self.seed, 2, self.step])
        if self.step < self.recipe.look_steps:
            losses = look_losses(self.lean, make_pictures(self.recipe, self.bank, rng), self.encoder)
        else:
            batch = make_batch(self.recipe, self.step, self.bank, self.encoder, rng)
            losses = measure_losses(self.lean, batch, self.lean.run(batch.groups), self.encoder)
        self.optimizer.zero_grad(set_to_none=True)
        total_loss(losses, self.recipe, self.step).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, self.step) * group["factor"]
        self.optimizer.step()
        return losses


def keep_memory() -> None:
    """Let the C library keep freed memory: handing it back and faulting it in again costs a tenth of a step."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
    except (OSError, AttributeError):
        return  # another C library: slower, not wrong


def _changed(recipe: Recipe, settings: list[str]) -> Recipe:
    """The recipe with ``name=value`` settings applied."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in {field.name for field in dataclasses.fields(recipe)}:
            raise SystemExit(f"unknown setting {name!r}; the settings are the fields of Recipe")
        values[name] = json.loads(value)
    return dataclasses.replace(recipe, **values)


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m harness_heads.tiny.train", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; resumed if it holds one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="change the recipe (recorded)")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    torch.set_flush_denormal(True)
    keep_memory()
    run = Run(given.seed, _changed(Recipe(), given.set), given.out)
    run.resume()
    run.train()


if __name__ == "__main__":
    main()
