"""From settings and methods to passes, and from passes to head sets: what the command line and a library user call."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness_heads.discovery.corpora import method_corpus, strip_corpus
from harness_heads.discovery.design import Options, Pass, Setting, passes
from harness_heads.discovery.loading import Loaded
from harness_heads.discovery.measure import SOURCE_WORDS
from harness_heads.discovery.methods import Method
from harness_heads.discovery.output import Finding, find, write
from harness_heads.discovery.runner import Job, Result, run_pass
from harness_heads.discovery.samples import Corpus
from harness_heads.discovery.score import default_k
from harness_heads.errors import HarnessHeadsError

ALL_SOURCES = ("last", "qsp", "out")


@dataclass(frozen=True)
class Request:
    """What all passes of a discovery share.

    Attributes:
        output: folder; each setting or method gets a folder of its own in it.
        n, seed: how many samples, and which.
        k: size of the sets; ``None`` takes at most 9 % of the heads.
        per_layer: ``k`` heads of every layer instead of ``k`` of the model.
        options: the open points of settings (methods bring their own rows and box rule).
        batch_size: prompts in one forward pass.
        data: local copy of the corpus, or the user's own.
        skip_corrupt: leave out samples whose image cannot be decoded.
        fresh: forget the journals of earlier runs.
        progress: show a bar.
    """

    output: Path
    n: int
    seed: int = 0
    k: int | None = None
    per_layer: bool = False
    options: Options = field(default_factory=Options)
    batch_size: int = 6
    data: Path | None = None
    skip_corrupt: bool = False
    fresh: bool = False
    progress: bool = True


def discover_settings(
    loaded: Loaded, settings: Sequence[Setting], request: Request, corpus_of: Callable[[str], Corpus] | None = None
) -> list[Finding]:
    """Settings of paper A: every (corpus, query) pair is read once, whatever sources are wanted of it.

    Args:
        corpus_of: corpus by short name; by default the registered recipes.
    """
    found = []
    for where, wanted in passes(settings).items():
        corpus = corpus_of(where.corpus) if corpus_of else strip_corpus(where.corpus, request.seed, request.data)
        sources = tuple(s for s in ALL_SOURCES if s in {w.source for w in wanted})
        job = Job(corpus, where.query, sources, request.options, request.n, request.seed)
        result = _run(loaded, job, request, where)
        for setting in wanted:
            found.append(_finding(loaded, job, result, setting.name, setting.words, setting.source, "sum", request))
            write(found[-1], request.output / setting.name)
    return found


def discover_methods(loaded: Loaded, methods: Sequence[Method], corpus_name: str, request: Request) -> list[Finding]:
    """Named methods and variants on one corpus; methods that read alike share a pass.

    Args:
        corpus_name: see :func:`~harness_heads.discovery.corpora.method_corpus`; part of the sets' names.
    """
    corpus, query = method_corpus(corpus_name, request.seed, loaded.family.grounding_prompt, request.data)
    groups: dict[tuple[str, str], list[Method]] = {}
    for method in methods:
        groups.setdefault((method.out_row, method.region_rule), []).append(method)
    found = []
    for (out_row, rule), members in groups.items():
        options = replace(request.options, out_row=out_row, region_rule=rule)
        sources = tuple(s for s in SOURCE_WORDS if s in {m.source for m in members})
        entropy = tuple(s for s in sources if any(m.phi == "entropy" and m.source == s for m in members))
        calibrated = tuple(s for s in sources if any(m.phi == "calibrated" and m.source == s for m in members))
        job = Job(corpus, query, sources, options, request.n, request.seed, entropy, calibrated)
        result = _run(loaded, job, request, Pass(corpus_name, f"{query}-{out_row}-{rule}"))
        for method in members:
            found.append(_method_finding(loaded, job, result, method, corpus_name, request))
            write(found[-1], request.output / found[-1].name.replace("/", "-"))
    return found


def _run(loaded: Loaded, job: Job, request: Request, where: Pass) -> Result:
    # what is measured is part of the file name: another choice of methods is another journal, not a clash
    measured = "+".join(
        (*job.sources, *(f"entropy.{s}" for s in job.entropy), *(f"calibrated.{s}" for s in job.calibrated))
    )
    folder = request.output / "passes" / f"{where.corpus}-{where.query}-{measured}"
    if request.fresh and folder.exists():
        shutil.rmtree(folder)
    return run_pass(
        loaded,
        job,
        batch_size=request.batch_size,
        journal=folder / "journal.jsonl",
        skip_corrupt=request.skip_corrupt,
        progress=request.progress,
    )


def _provenance(loaded: Loaded, job: Job, result: Result, source: str, measure: str) -> dict[str, Any]:
    notes: dict[str, Any] = {
        "query": job.query,
        "source": source,
        "source_words": SOURCE_WORDS[source],
        "measure": measure,
        "corpus": dict(job.corpus.provenance),
        "seed": job.seed,
        "asked_samples": job.n,
        "options": job.options.to_dict(),
        "read": loaded.describe(),
    }
    if result.skipped:
        notes["skipped"] = dict(result.skipped)
    if job.answered:
        notes["empty_answers"] = result.empty_answers
        if job.query == "loc":
            notes["answers_without_box"] = result.without_box
    return notes


def _finding(
    loaded: Loaded, job: Job, result: Result, name: str, words: str, source: str, measure: str, request: Request
) -> Finding:
    if job.options.region_norm == "mean":
        measure = "mean"
    return find(
        name,
        words[0].upper() + words[1:],
        result.measured.of(source, measure),
        result.measured.of(source, "image"),
        result.measured.of(source, "sink"),
        model=loaded.reference,
        geometry=loaded.geometry,
        slug=loaded.slug,
        ids=result.ids,
        clusters=result.clusters,
        k=_size(loaded, request),
        per_layer=request.per_layer,
        provenance=_provenance(loaded, job, result, source, measure),
    )


def _method_finding(
    loaded: Loaded, job: Job, result: Result, method: Method, corpus_name: str, request: Request
) -> Finding:
    k = _size(loaded, request)
    frequency = method.omega == "freq" and method.phi != "entropy"
    measured = replace_measure(method, job.options)
    per_sample = measured.per_sample(result.measured)
    provenance = {
        "method": method.name,
        "title": method.title,
        "reference": method.reference,
        "details": method.details,
        "reconstructed": method.reconstructed,
        "omega": method.omega,
        **({"frequency_top": method.frequency or k} if method.omega == "freq" else {}),
        **_provenance(loaded, job, result, method.source, measured.measure),
    }
    return find(
        f"{method.name}/{corpus_name}",
        f"{method.title}: {method.details}",
        per_sample,
        result.measured.of(method.source, "image"),
        result.measured.of(method.source, "sink"),
        model=loaded.reference,
        geometry=loaded.geometry,
        slug=loaded.slug,
        ids=result.ids,
        clusters=result.clusters,
        k=k,
        per_layer=request.per_layer,
        frequency=min(method.frequency or k, loaded.geometry.total) if frequency else None,
        provenance=provenance,
    )


def replace_measure(method: Method, options: Options) -> Method:
    """The method with the run's choice of keys for argmax and of the region's norm."""
    if method.phi == "argmax" and options.argmax_keys == "image":
        return replace(method, phi="argmax_image")
    if method.phi == "sum" and options.region_norm == "mean":
        return replace(method, phi="mean")
    return method


def _size(loaded: Loaded, request: Request) -> int:
    if request.k is not None:
        return request.k
    if request.per_layer:
        return min(3, *(n for n in loaded.geometry.heads if n))
    return default_k(loaded.geometry)


def check_request(loaded: Loaded, request: Request) -> None:
    """Find a bad ``k`` before anything is read.

    Raises:
        HarnessHeadsError: ``k`` below 1 or beyond the heads (of the model, or of a layer).
    """
    k = _size(loaded, request)
    limit = min(n for n in loaded.geometry.heads if n) if request.per_layer else loaded.geometry.total
    if not 1 <= k <= limit:
        where = "the smallest layer" if request.per_layer else "the model"
        raise HarnessHeadsError(f"k={k}: {where} has {limit} softmax attention heads; give 1 to {limit}")
