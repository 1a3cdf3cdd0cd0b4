"""Answers behind the prompts of a batch: generated or forced, and which of their tokens count as output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness_heads.boxes import write_box
from harness_heads.discovery.capture import to_device
from harness_heads.discovery.design import Options
from harness_heads.discovery.loading import Loaded, end_tokens, pad_token
from harness_heads.discovery.prompts import Rendered
from harness_heads.discovery.samples import Ask, Sample
from harness_heads.errors import HarnessHeadsError

_BOX = re.compile(r"-?[\d.]+(?:[\s,()\[\]]+-?[\d.]+){3}|(?:<loc\d+>){4}")


@dataclass(frozen=True, eq=False)
class Answer:
    """Token ids of an answer, and which of them count as output."""

    ids: Tensor
    output: tuple[int, ...]


def answers_of(
    loaded: Loaded, options: Options, grounding: bool, rendered: Rendered, asks: Sequence[tuple[Sample, Ask]]
) -> tuple[list[Answer], list[dict[str, int]]]:
    """Answers of a batch of prompts, generated greedily or forced, and what is to be noted of each.

    Args:
        options: ``output`` says where answers come from.
        grounding: the prompts ask for a box; of the answer, the tokens that spell it are the output.

    Raises:
        HarnessHeadsError: an answer to force that the corpus does not have.
    """
    tokenizer = getattr(loaded.processor, "tokenizer", loaded.processor)
    if options.output == "forced":
        all_ids = [_forced(loaded, grounding, sample, ask) for sample, ask in asks]
    else:
        all_ids = _generate(loaded, rendered, options.max_new_tokens)
    ends = end_tokens(loaded.model, loaded.processor)
    answers, notes = [], []
    for ids in all_ids:
        stop = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        note = {"empty_answers": int(stop == 0)}
        kept = ids[: max(stop, 1)]  # an empty answer is represented by its end token
        output = tuple(range(len(kept)))
        if grounding:
            box = _box_tokens(tokenizer, kept)
            note["without_box"] = int(not box)
            output = box or output
        answers.append(Answer(torch.tensor(kept, dtype=torch.long), output))
        notes.append(note)
    return answers, notes


def _forced(loaded: Loaded, grounding: bool, sample: Sample, ask: Ask) -> list[int]:
    """Token ids of the corpus' own answer; for boxes without one, of the gold box as the family writes it."""
    tokenizer = getattr(loaded.processor, "tokenizer", loaded.processor)
    answer = ask.answer
    if answer is None and grounding and loaded.family.box_format:
        region = sample.regions[ask.target]
        size = sample.images[region.image].size
        answer = write_box(region.boxes[0], loaded.family.box_format, size, size, ask.phrase)
    if answer is None:
        raise HarnessHeadsError(f"query {ask.text!r}: the corpus has no answer to force; use --output-tokens greedy")
    return [int(t) for t in tokenizer(answer, add_special_tokens=False)["input_ids"]]


def _generate(loaded: Loaded, rendered: Rendered, limit: int) -> list[list[int]]:
    """Greedy answers of a batch, up to ``limit`` tokens, without what lies behind the end token's place."""
    model: Any = loaded.model
    with torch.no_grad():
        made = model.generate(
            **to_device(rendered.inputs, model),
            max_new_tokens=limit,
            do_sample=False,
            pad_token_id=pad_token(model, loaded.processor),
        )
    length = rendered.inputs["input_ids"].shape[1]
    return [[int(t) for t in row[length:]] for row in made]


def _box_tokens(tokenizer: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Indices of the answer tokens that spell its box, empty where there is none."""
    ends = [len(tokenizer.decode(list(ids[: i + 1]), skip_special_tokens=False)) for i in range(len(ids))]
    found = _BOX.search(tokenizer.decode(list(ids), skip_special_tokens=False))
    if found is None:
        return ()
    starts = [0, *ends[:-1]]
    return tuple(i for i in range(len(ids)) if starts[i] < found.end() and ends[i] > found.start())
