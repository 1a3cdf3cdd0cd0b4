"""A model with one planted head: methods that read where it reads rank it first, methods that read elsewhere do not.

The model is an untrained Qwen3-VL. In one head of one layer, queries of the planted rows and keys of the panel that the
question names are replaced by one common direction (of the lowest rotary frequency, so that positions hardly turn it):
these rows then attend to that panel alone. Which rows are planted is the case; everything else is left as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness_heads.discovery.corpora.digits import Digits
from harness_heads.discovery.design import Options
from harness_heads.discovery.loading import Loaded, wrap
from harness_heads.discovery.measure import SOURCE_WORDS
from harness_heads.discovery.methods import ALL, method
from harness_heads.discovery.runner import Job, run_pass
from harness_heads.discovery.samples import Sample
from harness_heads.discovery.score import rank
from harness_heads.heads import Head, ModelRef
from harness_heads.tiny import wording
from harness_heads.tiny.architecture import build_model
from harness_heads.tiny.processor import build_processor

PLANTED = Head(3, 9)
STRENGTH = 9.0
DIMS = (7, 15)  # of 16: the pair that rotary embedding turns most slowly
ANSWER = "seven eight nine"


class Strips(Digits):
    """Ordinal strips with an answer of three tokens, so that output rows and the last prompt row differ."""

    def sample(self, index: int, query: str) -> Sample:
        sample = super().sample(index, query)
        return replace(sample, asks=tuple(replace(ask, answer=ANSWER) for ask in sample.asks))


@functools.cache
def untrained() -> Loaded:
    processor = build_processor()
    return wrap(build_model(processor.tokenizer, 5, 4).eval(), processor, ModelRef("tiny-digits"))


def single(word: str) -> int:
    ids = untrained().processor.tokenizer.encode(word, add_special_tokens=False)
    assert len(ids) == 1, word
    return int(ids[0])


def rows_and_keys(ids: list[int], where: str) -> tuple[list[int], list[int]]:
    """Planted rows and the named panel's tokens, from token ids alone."""
    ordinals = {single(f" {word}"): panel for panel, word in enumerate(wording.ORDINALS)}
    named = [i for i, token in enumerate(ids) if token in ordinals]
    if not named:
        return [], []  # a null query names no panel
    at, panel = named[-1], ordinals[ids[named[-1]]]
    first = ids.index(single("<|image_pad|>"))
    keys = [first + r * 12 + c for r in range(2) for c in (2 * panel, 2 * panel + 1)]
    last = max(i for i, token in enumerate(ids) if token == single("assistant")) + 1
    answer = list(range(last + 1, last + 4)) if len(ids) > last + 1 else []
    rows = {
        "span": [at - 1, at, at + 1],
        "last": [last],
        "answer": answer,
        "predict": [row - 1 for row in answer],
    }[where]
    return rows, keys


@contextmanager
def planted(where: str) -> Iterator[None]:
    model: Any = untrained().model
    attention = model.model.language_model.layers[PLANTED.layer].self_attn
    current: dict[str, Tensor] = {}

    def note(_: Any, args: Any, kwargs: Any) -> None:
        current["ids"], current["mask"] = kwargs["input_ids"], kwargs["attention_mask"]

    def change(output: Tensor, query: bool) -> Tensor:
        out = output.clone()
        group = PLANTED.head // 2
        for b in range(out.shape[0]):
            seen = current["mask"][b].nonzero()[:, 0]
            pad = int(seen[0])
            rows, keys = rows_and_keys(current["ids"][b][pad : int(seen[-1]) + 1].tolist(), where)
            if query:
                for head in (2 * group, 2 * group + 1):
                    out[b, :, head, list(DIMS)] = 0.0
                for row in rows:
                    out[b, row + pad, PLANTED.head] = 0.0
                    out[b, row + pad, PLANTED.head, DIMS[0]] = STRENGTH
            else:
                out[b, :, group, list(DIMS)] = 0.0
                for key in keys:
                    out[b, key + pad, group, DIMS[0]] = STRENGTH
        return out

    hooks = [
        model.register_forward_pre_hook(note, with_kwargs=True),
        attention.q_norm.register_forward_hook(lambda _m, _a, out: change(out, True)),
        attention.k_norm.register_forward_hook(lambda _m, _a, out: change(out, False)),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


SAMPLES = 2


@functools.cache
def measured(where: str, out_row: str, rule: str) -> Any:
    options = Options(output="forced", out_row=out_row, region_rule=rule)
    job = Job(Strips(1), "ord", tuple(SOURCE_WORDS), options, SAMPLES, 0, entropy=("last",), calibrated=("turn", "in"))
    with planted(where):
        return run_pass(untrained(), job, batch_size=6, progress=False).measured


def place(scores: np.ndarray) -> int:
    """Rank of the planted head, from 0."""
    return rank(scores, untrained().geometry).index(PLANTED)


@pytest.mark.parametrize(
    ("source", "where", "first"),
    [
        ("qsp", "span", True),
        ("last", "span", False),
        ("out", "span", False),
        ("last", "last", True),
        ("qsp", "last", False),
        ("out", "last", False),
        ("out", "answer", True),
        ("last", "answer", False),
        ("qsp", "answer", False),
    ],
)
def test_settings_find_the_head_where_they_read_and_only_there(source: str, where: str, first: bool) -> None:
    scores = measured(where, "consume", "centre").of(source, "sum").mean(0)
    if first:
        assert place(scores) == 0
        assert scores[PLANTED] > 0.9
    else:
        assert place(scores) > 0
        assert scores[PLANTED] < 0.5


READS_SPAN = {"qrhead", "multimodal-retrieval", "in-sum-avg", "in-sum-freq", "in-argmax-avg", "in-argmax-freq"}
READS_LAST = {"gaze", "vera", "last-sum-avg", "first-sum-avg", "localization"}
READS_OUTPUT = {"vrh", "retrieval", "ocr", "out-sum-avg", "out-sum-freq", "out-argmax-avg", "out-argmax-freq"}


FINDS = {
    "span": READS_SPAN | {"both-sum-avg"},
    "last": READS_LAST,
    # the first predicting row is the last prompt row, which the methods of the last row read too
    "predict": READS_OUTPUT | READS_LAST | {"one-sum-avg", "both-sum-avg"},
}
# methods that read the planted row among several others: no claim either way
UNCLAIMED = {
    "span": set(),
    "last": READS_OUTPUT | {"one-sum-avg", "both-sum-avg", "qrhead"},
    "predict": {"qrhead"},
}
CLAIMS = [(name, where) for where in FINDS for name in sorted(ALL) if name not in UNCLAIMED[where]]


@pytest.mark.parametrize(("name", "where"), CLAIMS)
def test_methods_find_the_head_where_they_read_and_only_there(name: str, where: str) -> None:
    one = method(name)
    scores = one.score(measured(where, one.out_row, one.region_rule), k=8)
    best = np.nanmax(scores)
    if name in FINDS[where]:
        # frequencies and hits may tie at the top; means may not
        assert scores[PLANTED] == best, f"{name} ranks it {place(scores)}"
        if one.omega == "avg" and one.phi in ("sum", "share", "calibrated"):
            assert place(scores) == 0
    else:
        assert scores[PLANTED] < best, f"{name} should not find it"


def test_without_the_plant_no_setting_finds_the_head() -> None:
    job = Job(Strips(1), "ord", ("last", "qsp"), Options(), SAMPLES, 0)
    clean = run_pass(untrained(), job, batch_size=6, progress=False).measured
    for source in ("last", "qsp"):
        assert clean.of(source, "sum").mean(0)[PLANTED] < 0.5


def test_the_plant_reaches_its_panel_alone() -> None:
    """The panel's tokens hold the attention; the sibling head of the key/value group is not planted."""
    values = measured("span", "consume", "centre")
    assert values.of("qsp", "argmax").mean(0)[PLANTED] == 1.0
    sibling = Head(PLANTED.layer, PLANTED.head - 1)
    assert values.of("qsp", "sum").mean(0)[sibling] < 0.5
    assert torch.tensor(values.of("qsp", "image").mean(0)[PLANTED]) > 0.9
