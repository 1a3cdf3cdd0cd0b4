"""The one mixin that turns a chat class of lmms-eval into ``masked_*``, ``steered_*`` or ``ablated_*``.

Requests with a probe are answered by the engine, all head sets of the run at once; requests without one are generated
by the host itself under the intervention. Everything that is not about heads stays the host's.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image

from harness_heads import controls, head_sets
from harness_heads.conditions import Condition, Op, expand
from harness_heads.engine import NONE, Engine
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import family_of
from harness_heads.heads import ModelRef, SetTable
from harness_heads.models.capture import run_through_host
from harness_heads.models.hosts import Host, prefix_of, wrapper_name
from harness_heads.models.journal import Journal
from harness_heads.models.loading import host_arguments, loading
from harness_heads.models.located import answer_locate, grounding_text
from harness_heads.models.run_info import (
    fingerprint,
    plan_digest,
    read_run_file,
    run_folder,
    run_information,
    write_run_file,
)
from harness_heads.models.stock import generate_stock
from harness_heads.probes import Probe, ProbeResult, probe_from_dict
from harness_heads.regions import image_sha
from harness_heads.settings import DEFAULT_CONTROLS, UNTOUCHED, Settings, check_op, split_model_args

PADDING = json.dumps({"schema": 1, "padding": True})
"""Answer to a copy that lmms-eval sends to even out its ranks; nobody reads it."""


class HeadsMixin:
    """Mixed in front of a chat class of lmms-eval; see :func:`harness_heads.models.wrapped.wrapped_class`."""

    op: ClassVar[Op]
    host: ClassVar[Host]
    is_simple = False

    def __init__(self, **model_args: Any) -> None:
        base_init = super().__init__
        names = [n for n in inspect.signature(base_init).parameters if n not in ("self", "kwargs")]
        # lmms-eval hands max_batch_size to every model and hosts ignore it through **kwargs or refuse it
        model_args.pop("max_batch_size", None)
        settings, arguments = split_model_args(model_args, [*names, "model_id"])
        check_op(settings, self.op)
        # what cannot be read at the end is an error now, not after the last answer
        plan_digest(settings)
        self._run_folder = run_folder()
        if self._run_folder is not None:
            read_run_file(self._run_folder)
        named = arguments.pop("model_id", None)
        model_id, arguments = host_arguments(self.host, arguments)
        with loading(model_id):
            base_init(**arguments)
        self.settings = settings
        model: Any = self.model
        self.family = family_of(model)
        self.reference = ModelRef(head_sets.model_id(named or model_id), getattr(model.config, "_commit_hash", None))
        self.sets = self._set_table()
        self.engine = Engine(
            model,
            self._processor_or_tokenizer(),
            verify=settings.verify,
            chunk=settings.condition_batch,
        )
        self._announce()

    # lmms-eval's hosts define these; named here for the type checker
    model: Any
    batch_size_per_gpu: int
    rank: int

    def generate_until(self, requests: list[Any]) -> list[Any]:
        """Answer every request: probes by the engine, padding copies with a constant, the rest by the host."""
        answers: list[Any] = [None] * len(requests)
        probes: dict[int, Probe] = {}
        stock: list[int] = []
        for number, request in enumerate(requests):
            metadata = request.metadata or {}
            if metadata.get("__padding_only__"):
                answers[number] = PADDING
            elif "probe" in metadata:
                probes[number] = self._admit(probe_from_dict(metadata["probe"]))
            else:
                stock.append(number)
        if probes:
            for number, text in self._answer_probes(requests, probes).items():
                answers[number] = text
        if stock:
            for number, answer in zip(stock, self._answer_stock([requests[n] for n in stock]), strict=True):
                answers[number] = answer
        return answers

    def host_generate(self, requests: list[Any]) -> list[Any]:
        """The host's own answers, untouched."""
        answers: list[Any] = super().generate_until(requests)  # type: ignore[misc]
        return answers

    def _set_table(self) -> SetTable:
        specs = self.settings.head_set
        geometry = self.family.geometry(self.model)
        if UNTOUCHED in specs:
            if len(specs) > 1:
                raise HarnessHeadsError(
                    f"head_set={UNTOUCHED} stands alone: the untouched host is every run's baseline"
                )
            specs = ()
        elif not specs:
            specs = (head_sets.default_for(self.reference.id),)
        found = [head_sets.check_model(head_sets.resolve(spec), self.reference, geometry) for spec in specs]
        return controls.set_table(found, self.settings, self.reference, geometry)

    def _processor_or_tokenizer(self) -> Any:
        for name in ("processor", "_processor", "tokenizer", "_tokenizer"):
            if getattr(self, name, None) is not None:
                return getattr(self, name)
        raise HarnessHeadsError(f"host {self.host.model_id}: no processor found")

    def _announce(self) -> None:
        """The first line says what runs, defaults included."""
        discovered = [e for e in self.sets if e.role in ("discovered", "subset")]
        named = ", ".join(f"{e.heads.name} ({len(e.heads)} heads, {e.key})" for e in discovered) or "no head"
        how = "" if self.settings.head_set else " (default: the shipped set that fits this model)"
        count = len(self.sets.role("control"))
        print(
            f"harness-heads: {self.op} {named}{how}; {count} control sets for tasks with a probe "
            f"({'+'.join(self.settings.control_family)}, seed {self.settings.control_seed}, "
            f"default {DEFAULT_CONTROLS} a set); {self.reference.id} in {str(self.model.dtype).removeprefix('torch.')}",
            file=sys.stderr,
        )

    def _admit(self, probe: Probe) -> Probe:
        """Refuse a probe that asks for another operation than this class performs."""
        for condition in probe.conditions:
            if condition.op != self.op:
                right = wrapper_name(prefix_of(condition.op), self.host)
                raise HarnessHeadsError(
                    f"task {probe.task!r} asks for {condition.op}, {wrapper_name(prefix_of(self.op), self.host)} "
                    f"performs {self.op}; run it with --model {right}"
                )
        return probe

    def _conditions(self, probe: Probe) -> tuple[Condition, ...]:
        settings = self.settings
        for name in ("rows", "beta"):
            if getattr(settings, name) and name not in probe.overrides:
                raise HarnessHeadsError(f"task {probe.task!r} fixes {name}; leave {name}= out of model_args")
        if settings.box is not None:
            raise HarnessHeadsError(
                f"task {probe.task!r} says itself where to steer; box= is for tasks without a probe, leave it out"
            )
        expanded = expand(probe.conditions, rows=settings.rows, betas=settings.beta)
        return tuple(
            Condition(
                c.op,
                c.keys,
                c.rows,
                c.beta,
                phase=settings.phase,
                keep_self=settings.keep_self,
                numerics=settings.numerics if c.op == "steer" else "float32",
                ablation=settings.ablation if c.op == "ablate" else "zero",
            )
            for c in expanded
        )

    def _answer_probes(self, requests: Sequence[Any], probes: Mapping[int, Probe]) -> dict[int, str]:
        every = tuple(dict.fromkeys(c for probe in probes.values() for c in self._conditions(probe)))
        shared = fingerprint(self.reference, self.model, self.sets, self.settings, self.op)
        path = self._journal_path()
        journal = Journal(path, shared)
        answers = {number: journal.kept(probe, *self._asked(probe)) for number, probe in probes.items()}
        for line in journal.told(len(answers)):
            print(f"harness-heads: {line}", file=sys.stderr)
        waiting = [number for number in probes if answers[number] is None]

        def handle(order: int, inputs: Mapping[str, torch.Tensor], images: list[Image.Image]) -> None:
            number = waiting[order]
            result = self._answer(probes[number], inputs, images)
            answers[number] = result.to_json()
            journal.put(probes[number], result.to_json())

        def word(order: int, text: str) -> str:
            probe = probes[waiting[order]]
            return grounding_text(self.family, probe) if probe.ask == "locate" else text

        if waiting:
            before, self.batch_size_per_gpu = self.batch_size_per_gpu, 1
            try:
                run_through_host(self.host_generate, self.model, [requests[n] for n in waiting], handle, word)
            finally:
                self.batch_size_per_gpu = before
        information = run_information(
            self.reference, self.model, self.host, self.family, self.sets, every, self.settings, self.op, self.engine
        )
        if self._run_folder is not None and self.rank == 0:
            plan = None if self.settings.plan is None else Path(self.settings.plan)
            write_run_file(self._run_folder, information, sorted({probe.task for probe in probes.values()}), plan)
        return _with_run(probes, answers, information)

    def _asked(self, probe: Probe) -> tuple[list[str], list[str]]:
        """Names of the conditions and keys of the sets that an answer must hold."""
        conditions = [condition.name for condition in self._conditions(probe)]
        return conditions or [NONE], [e.key for e in self.sets] if conditions else [self.sets.baseline.key]

    def _answer(self, probe: Probe, inputs: Mapping[str, torch.Tensor], images: list[Image.Image]) -> ProbeResult:
        conditions = self._conditions(probe)
        shas = tuple(image_sha(image) for image in images)
        sizes = [image.size for image in images]
        entries = list(self.sets) if conditions else [self.sets.baseline]
        try:
            if probe.ask == "locate":
                return answer_locate(self.engine, self.family, probe, conditions, entries, inputs, sizes, shas)
            answers = self.engine.answer(
                inputs,
                [entry.heads for entry in entries],
                keys=[entry.key for entry in entries],
                conditions=conditions,
                options=probe.options,
                regions=probe.regions,
                image_sizes=sizes,
            )
        except HarnessHeadsError as error:
            raise HarnessHeadsError(f"task {probe.task}, item {probe.item}, arm {probe.arm}: {error}") from error
        return ProbeResult(
            logprobs=answers.logprobs,
            dose=answers.dose,
            option_mass=answers.option_mass,
            image_sha=shas,
            numerics=answers.numerics,
        )

    def _answer_stock(self, requests: list[Any]) -> list[Any]:
        if self.sets.role("control") or self.sets.role("damage"):
            print(
                "harness-heads: tasks without a probe are answered under the head set alone, no control set is run; "
                "`harness-heads run PLAN` runs one after the other",
                file=sys.stderr,
            )
        return generate_stock(self.engine, self.sets, self.settings, self.op, self.host_generate, requests)

    def _journal_path(self) -> Path | None:
        if self.settings.journal is not None:
            return Path(self.settings.journal)
        if self._run_folder is None:
            return None
        return self._run_folder / ("journal.jsonl" if self.rank == 0 else f"journal.rank{self.rank}.jsonl")


def _with_run(
    probes: Mapping[int, Probe], answers: Mapping[int, str | None], information: Mapping[str, Any]
) -> dict[int, str]:
    """Put the run's settings and tables into the first response of every task: evidence can then be read from
    lmms-eval's own files alone."""
    seen: set[str] = set()
    out: dict[int, str] = {}
    for number, probe in probes.items():
        text = answers[number]
        if text is None:
            raise HarnessHeadsError(f"task {probe.task}, item {probe.item}, arm {probe.arm}: no answer")
        if probe.task not in seen:
            seen.add(probe.task)
            text = json.dumps({**json.loads(text), "run": information}, separators=(",", ":"), ensure_ascii=False)
        out[number] = text
    return out


__all__ = ["HeadsMixin", "Settings"]
