"""One pass over a corpus: prompts in, measures of every sample and head out, resumable sample by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from harness_heads.discovery.answers import Answer, answers_of
from harness_heads.discovery.capture import Got, capture
from harness_heads.discovery.design import Options
from harness_heads.discovery.journal import Entry, PassJournal
from harness_heads.discovery.loading import Loaded, code_digest, pad_token
from harness_heads.discovery.measure import (
    ENTROPY,
    MEASURES,
    Plan,
    measure,
    measure_calibrated,
    measure_entropy,
    plan_rows,
)
from harness_heads.discovery.methods import CALIBRATED
from harness_heads.discovery.prompts import Prompt, Rendered, render, span_rows, system_of, with_answers
from harness_heads.discovery.samples import Ask, Corpus, CorruptImageError, Sample, choose
from harness_heads.discovery.score import Measured
from harness_heads.errors import HarnessHeadsError
from harness_heads.weights import spread_digest

NULL_PHRASE = "N/A"  # QRHead's null query
_ANSWERED = ("out", "both", "first", "one")  # sources that need answer tokens


@dataclass(frozen=True, eq=False)
class Job:
    """What one pass reads.

    Attributes:
        corpus, query: which samples and how they are asked (``ord``, ``ref``, ``loc``).
        sources: rows that are read (see :data:`~harness_heads.discovery.measure.SOURCE_WORDS`).
        options: the open points.
        entropy: sources whose spatial entropy is kept.  calibrated: sources whose calibrated score is kept.
        n, seed: how many samples, and which.
    """

    corpus: Corpus
    query: str
    sources: tuple[str, ...]
    options: Options
    n: int
    seed: int
    entropy: tuple[str, ...] = ()
    calibrated: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """Names along the measure axis."""
        return (*MEASURES, *((ENTROPY,) if self.entropy else ()), *((CALIBRATED,) if self.calibrated else ()))

    @property
    def answered(self) -> bool:
        """Whether answers are generated (or forced) at all."""
        return any(source in _ANSWERED for source in self.sources)

    def fingerprint(self, loaded: Loaded) -> dict[str, Any]:
        """Everything that decides a sample's measures."""
        return {
            "model": loaded.describe(),
            "values": spread_digest(loaded.model),
            "corpus": dict(self.corpus.provenance),
            "query": self.query,
            "sources": list(self.sources),
            "measures": list(self.measures),
            "entropy": list(self.entropy),
            "calibrated": list(self.calibrated),
            "options": self.options.to_dict(),
            "seed": self.seed,
            "code": code_digest(),
        }


@dataclass(frozen=True, eq=False)
class Result:
    """What a pass found.

    Attributes:
        measured: measures of all samples that were read.
        ids, clusters: of these samples, in the same order.
        skipped: samples left out, with the reason.
        empty_answers: prompts that were answered by the end token alone (its row stands for the answer).
        without_box: grounding answers without four numbers (all their tokens count).
    """

    measured: Measured
    ids: tuple[str, ...]
    clusters: tuple[str, ...]
    skipped: Mapping[str, str]
    empty_answers: int
    without_box: int


def run_pass(
    loaded: Loaded,
    job: Job,
    *,
    batch_size: int = 6,
    journal: Path | None = None,
    skip_corrupt: bool = False,
    progress: bool = True,
) -> Result:
    """Read a pass.

    Args:
        batch_size: prompts in one forward pass. Groups of samples that share a batch are the same in a resumed run.
        journal: file that makes the pass resumable; ``None`` keeps it in memory.
        skip_corrupt: leave out samples whose image cannot be decoded, instead of stopping at the first.

    Raises:
        HarnessHeadsError: whatever is wrong with the corpus, the options or the journal; no sample left to read.
    """
    if batch_size < 1:
        raise HarnessHeadsError(f"batch_size={batch_size}: at least one prompt a batch is needed")
    order = choose(len(job.corpus), job.n, job.seed, job.corpus.name)
    book = PassJournal(journal, job.fingerprint(loaded))
    per_group = max(1, batch_size // (1 if job.query == "loc" else 6))
    entries: list[Entry] = []
    bar = tqdm(total=len(order), desc=f"{job.corpus.name} {job.query}", unit="sample", disable=not progress)
    for start in range(0, len(order), per_group):
        group = order[start : start + per_group]
        done = [book.get(str(index)) for index in group]
        if all(entry is not None for entry in done):
            entries += [entry for entry in done if entry is not None]
        else:
            fresh = _read_group(loaded, job, group, batch_size, skip_corrupt)
            book.put(fresh)
            entries += fresh
        bar.update(len(group))
    bar.close()
    return _gather(job, entries)


def _gather(job: Job, entries: Sequence[Entry]) -> Result:
    kept = [e for e in entries if e.values is not None]
    skipped = {str(e.notes["id"]): str(e.notes["skipped"]) for e in entries if e.values is None}
    if not kept:
        raise HarnessHeadsError(f"corpus {job.corpus.name}: no sample could be read ({len(skipped)} skipped)")
    values = np.stack([e.values for e in kept if e.values is not None])
    return Result(
        Measured(values, job.sources, job.measures),
        tuple(str(e.notes["id"]) for e in kept),
        tuple(e.cluster for e in kept),
        skipped,
        sum(int(e.notes.get("empty_answers", 0)) for e in kept),
        sum(int(e.notes.get("without_box", 0)) for e in kept),
    )


def _read_group(loaded: Loaded, job: Job, group: Sequence[int], batch_size: int, skip_corrupt: bool) -> list[Entry]:
    samples: list[tuple[int, Sample]] = []
    entries: dict[int, Entry] = {}
    for index in group:
        try:
            samples.append((index, job.corpus.sample(index, job.query)))
        except CorruptImageError as error:
            if not skip_corrupt:
                raise CorruptImageError(f"{error}; leave such samples out with --skip-corrupt") from error
            entries[index] = Entry(str(index), str(index), None, {"id": str(index), "skipped": str(error)})
    asks = [(index, sample, number) for index, sample in samples for number in range(len(sample.asks))]
    sums: dict[int, NDArray[np.float64]] = {}
    notes: dict[int, dict[str, int]] = {index: {"empty_answers": 0, "without_box": 0} for index, _ in samples}
    for start in range(0, len(asks), batch_size):
        batch = asks[start : start + batch_size]
        rngs = [_ask_rng(job, index, number) for index, _, number in batch]
        for (index, _, _), (values, note) in zip(
            batch, _read_batch(loaded, job, [(s, s.asks[a]) for _, s, a in batch], rngs), strict=True
        ):
            sums[index] = sums[index] + values if index in sums else values
            for name, count in note.items():
                notes[index][name] += count
    for index, sample in samples:
        mean = (sums[index] / len(sample.asks)).astype(np.float32)
        entries[index] = Entry(str(index), sample.cluster, mean, {"id": sample.id, **notes[index]})
    return [entries[index] for index in group]


def _ask_rng(job: Job, index: int, number: int) -> np.random.Generator:
    return np.random.default_rng([job.seed, index, number, 0x0E])


def _read_batch(
    loaded: Loaded, job: Job, asks: Sequence[tuple[Sample, Ask]], rngs: Sequence[np.random.Generator]
) -> list[tuple[NDArray[np.float64], dict[str, int]]]:
    options = job.options
    rendered = _render(loaded, [Prompt(s.images, ask.text) for s, ask in asks])
    answers = [Answer(torch.zeros(0, dtype=torch.long), ())] * len(asks)
    notes: list[dict[str, int]] = [{}] * len(asks)
    if job.answered:
        answers, notes = answers_of(loaded, options, job.query == "loc", rendered, asks)
    plans: list[Plan] = []
    maps = tuple({*job.entropy, *job.calibrated})
    for row, (sample, ask) in enumerate(asks):
        name = f"{sample.id}, {ask.target}"
        span = torch.zeros(0, dtype=torch.long)
        if "qsp" in job.sources:
            where = ask.span if options.span == "phrase" else (0, len(ask.text))
            span = span_rows(loaded.processor, rendered, row, ask.text, where, options.widen)
        plans.append(
            plan_rows(
                rendered.layouts[row],
                span,
                len(answers[row].ids),
                answers[row].output,
                job.sources,
                sample.regions[ask.target],
                out_row=options.out_row,
                rule=options.region_rule,  # type: ignore[arg-type]  # a word that Options checked
                rng=rngs[row],
                maps=maps,
                name=name,
            )
        )
    inputs: Mapping[str, Any] = rendered.inputs
    if job.answered:
        pad = pad_token(loaded.model, loaded.processor)
        inputs = with_answers(rendered, [a.ids for a in answers], pad, loaded.model.config)
    got = capture(loaded.model, loaded.family, inputs, [p.want for p in plans], rendered.pads)
    null = _null_maps(loaded, job, asks) if job.calibrated else None
    out = []
    for row, plan in enumerate(plans):
        values = measure(plan, got[row], job.sources)
        layout = rendered.layouts[row]
        if job.entropy:
            extra = np.full((len(job.sources), 1, *values.shape[2:]), np.nan)
            for source in job.entropy:
                extra[job.sources.index(source), 0] = measure_entropy(layout, got[row], source)
            values = np.concatenate([values, extra], axis=1)
        if null is not None:
            extra = np.full((len(job.sources), 1, *values.shape[2:]), np.nan)
            for source in job.calibrated:
                at = job.sources.index(source)
                extra[at, 0] = measure_calibrated(plan, got[row], null[row], source, layout.image_positions)
            values = np.concatenate([values, extra], axis=1)
        out.append((values, notes[row]))
    return out


def _render(loaded: Loaded, prompts: Sequence[Prompt]) -> Rendered:
    config: Any = loaded.model.config
    return render(loaded.processor, config, loaded.family, prompts, system_of(loaded.family))


def _null_maps(loaded: Loaded, job: Job, asks: Sequence[tuple[Sample, Ask]]) -> list[Got]:
    """The same prompts with the null phrase, read for their image rows."""
    texts = [ask.text[: ask.span[0]] + NULL_PHRASE + ask.text[ask.span[1] :] for _, ask in asks]
    rendered = _render(loaded, [Prompt(s.images, text) for (s, _), text in zip(asks, texts, strict=True)])
    wants = []
    for row, (sample, ask) in enumerate(asks):
        span = torch.zeros(0, dtype=torch.long)
        if "qsp" in job.calibrated:
            where = (ask.span[0], ask.span[0] + len(NULL_PHRASE))
            span = span_rows(loaded.processor, rendered, row, texts[row], where, job.options.widen)
        plan = plan_rows(
            rendered.layouts[row],
            span,
            0,
            (),
            job.calibrated,
            sample.regions[ask.target],
            out_row=job.options.out_row,
            rule=job.options.region_rule,  # type: ignore[arg-type]  # a word that Options checked
            rng=np.random.default_rng(0),
            maps=job.calibrated,
            name=sample.id,
        )
        wants.append(plan.want)
    return capture(loaded.model, loaded.family, rendered.inputs, wants, rendered.pads)
