"""One prompt, all conditions and sets: what is recorded, what runs in which batch, and by which way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import nn

from harness_heads.attention import Handler
from harness_heads.engine_batch import Outcome, run_batch
from harness_heads.engine_clean import Clean, clean_pass
from harness_heads.engine_dose import key_sets
from harness_heads.engine_handlers import Overwrite, Record, Target
from harness_heads.engine_prefix import ReplayHandler
from harness_heads.engine_replay import CannotReplay, Job, check_chain, first_difference, run_replay
from harness_heads.families import Family
from harness_heads.heads import Head
from harness_heads.interventions import Action

Mode = Literal["auto", "batch", "replay"]
CPU_ROWS, GPU_ROWS = 1280, 16384  # rows that run together by default: near the caches, or enough to fill a GPU
Heads = tuple[Head, ...]
Watch = Callable[[Overwrite | ReplayHandler], Handler]


def unwatched(handler: Overwrite | ReplayHandler) -> Handler:
    """Nothing looks on."""
    return handler


@dataclass(frozen=True)
class Runner:
    """Runs head sets under actions on one prompt.

    Attributes:
        chunk: head sets that run together; ``None`` lets the number of rows decide.
        mode: ``replay`` raises where a model's layers cannot be replayed, ``auto`` runs plain batches there.
    """

    model: nn.Module
    family: Family
    chunk: int | None
    mode: Mode

    def record(self, inputs: Mapping[str, Any], sets: Sequence[Heads], actions: Sequence[Action]) -> Clean:
        """The clean pass, with what the runs and their doses need."""
        ids = inputs["input_ids"]
        rows = torch.zeros(ids.shape[1], dtype=torch.bool)
        for action in actions:
            rows |= action.rows
        layers = frozenset(head.layer for heads in sets for head in heads) if actions else frozenset[int]()
        keys = key_sets(actions) if actions else torch.zeros(len(rows), 0)
        joins = {join_of(heads) for heads in sets if heads} if actions and self.mode != "batch" else set[int]()
        record = Record(layers, rows.nonzero()[:, 0].to(ids.device), keys.to(ids.device), min(joins, default=None))
        return clean_pass(self.model, self.family, inputs, record, joins)

    def run(
        self, clean: Clean, sets: Sequence[Heads], actions: Mapping[str, Action], watch: Watch
    ) -> tuple[dict[str, Outcome], str]:
        """Outcomes by action, row i for set i, and the way they were computed (``replay`` or ``batch``).

        Every batch of rows that begin at the same place holds the empty set once, joined with the earliest set: it is
        the baseline of all actions in that batch.

        Args:
            watch: puts what looks on around the handler of every batch.
        """
        if self.mode != "batch" and any(sets):
            try:
                check_chain(self.model, self.family, clean)
                return self._grouped(clean, sets, actions, watch), "replay"
            except CannotReplay:
                if self.mode == "replay":
                    raise
        return self._all_rows(clean, sets, actions, watch), "batch"

    def _together(self, rows: int) -> int:
        """How many sets of ``rows`` rows run together."""
        on_gpu = next(self.model.parameters()).device.type != "cpu"
        return self.chunk or max(1, (GPU_ROWS if on_gpu else CPU_ROWS) // rows)

    def first_row(self, clean: Clean, action: Action) -> int:
        """First row of the prompt that is replayed; rows before it are the clean pass's."""
        return first_difference(action, clean, self.family.replay_way(self.model))

    def _grouped(
        self, clean: Clean, sets: Sequence[Heads], actions: Mapping[str, Action], watch: Watch
    ) -> dict[str, Outcome]:
        starts: dict[int, dict[str, Action]] = {}
        for name, action in actions.items():
            starts.setdefault(self.first_row(clean, action), {})[name] = action
        outcomes: dict[str, Outcome] = {}
        for first_row, group in starts.items():
            jobs, rows = _jobs(sets, group)
            jobs_in_order = sorted(range(len(jobs)), key=lambda i: jobs[i].join)
            parts: list[Outcome] = []
            length = next(iter(group.values())).length
            for part in _even_chunks(jobs_in_order, self._together(length - first_row)):
                chosen = [jobs[i] for i in part]
                parts.append(run_replay(self.model, self.family, clean, chosen, first_row, length, watch))
            back = torch.tensor(jobs_in_order, device=parts[0].logits.device).argsort()
            outcomes.update(_distribute(_concatenated(parts), rows, back))
        return {name: outcomes[name] for name in actions}

    def _all_rows(
        self, clean: Clean, sets: Sequence[Heads], actions: Mapping[str, Action], watch: Watch
    ) -> dict[str, Outcome]:
        jobs, rows = _jobs(sets, actions)
        targets = [job.target for job in jobs]
        parts = [
            run_batch(self.model, self.family, clean.decoder_kwargs, [targets[i] for i in part], watch)
            for part in _even_chunks(list(range(len(targets))), self._together(clean.length))
        ]
        back = torch.arange(len(jobs), device=parts[0].logits.device)
        return _distribute(_concatenated(parts), rows, back)


def join_of(heads: Heads) -> int:
    """First layer that a set touches."""
    return min(head.layer for head in heads)


def _jobs(sets: Sequence[Heads], actions: Mapping[str, Action]) -> tuple[list[Job], dict[str, list[int]]]:
    """The runs of some actions, the shared baseline first, and per action which run each set reads."""
    joins = [join_of(heads) for heads in sets if heads]
    jobs = [Job(Target((), None), min(joins, default=0))]
    rows: dict[str, list[int]] = {}
    for name, action in actions.items():
        rows[name] = []
        for heads in sets:
            if not heads:
                rows[name].append(0)
                continue
            rows[name].append(len(jobs))
            jobs.append(Job(Target(heads, action), join_of(heads)))
    return jobs, rows


def _even_chunks(items: Sequence[int], size: int) -> list[Sequence[int]]:
    """``items`` in order, in the fewest chunks of at most ``size``, as even as they come: shapes differ little."""
    count = math.ceil(len(items) / size)
    borders = [round(i * len(items) / count) for i in range(count + 1)]
    return [items[a:b] for a, b in pairwise(borders)]


def _concatenated(parts: Sequence[Outcome]) -> Outcome:
    return Outcome(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _distribute(outcome: Outcome, rows: Mapping[str, list[int]], back: torch.Tensor) -> dict[str, Outcome]:
    """Per action the rows of its sets; ``back`` says where run i stands in ``outcome``."""
    found = {}
    for name, runs in rows.items():
        index = back[torch.tensor(runs, device=back.device)]
        found[name] = Outcome(outcome.logits[index], outcome.mass[index], outcome.acted[index])
    return found
