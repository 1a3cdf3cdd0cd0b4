"""What training minimises, and how often its answers were right."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from .batches import Batch
from .encode import Encoder, Targets
from .items import Question
from .lean import Lean, Output

COSINE_SCALE = 8.0
_SCORED = 0.3  # tokens of lower weight (the end of the turn) do not count as answers


@dataclass(frozen=True)
class Losses:
    """answers, align, place, sparse: The four terms, unweighted; right: task -> [right answers, answers]."""

    answers: Tensor
    align: Tensor
    place: Tensor
    sparse: Tensor
    right: dict[str, list[int]]


def _token_losses(logits: Tensor, targets: Targets, letters: Tensor) -> Tensor:
    log_p = logits.log_softmax(-1)
    hard = -log_p.gather(1, targets.token[:, None])[:, 0]
    spread = -(log_p[:, letters] * targets.letters).sum(1)
    return torch.where(targets.letters.sum(1) > 0, spread, hard)


def _count(right: dict[str, list[int]], logits: Tensor, targets: Targets, questions: list[Question]) -> None:
    ok = (logits.argmax(-1) == targets.token) | (targets.weight < _SCORED)
    whole = torch.ones(len(questions), dtype=torch.bool)
    whole[targets.question[~ok]] = False
    for question, good in zip(questions, whole.tolist(), strict=True):
        right[question.task][0] += good
        right[question.task][1] += 1


def _cosine(tokens: Tensor, words: Tensor) -> Tensor:
    return COSINE_SCALE * F.normalize(tokens, dim=-1) @ F.normalize(words, dim=-1).T


def _place_loss(merged: Tensor, kind: str, table: Tensor, encoder: Encoder) -> Tensor:
    count, _, width = merged.shape
    if kind == "strip":
        panel = torch.arange(6).repeat_interleave(2).repeat(2)
        scores = _cosine(merged.reshape(-1, width), table[encoder.ordinal_words])
        return F.cross_entropy(scores, panel.repeat(count))
    scores = _cosine(merged.reshape(-1, width), table[encoder.place_words])
    row = torch.arange(2).repeat_interleave(8).repeat(count)
    column = torch.arange(2).repeat_interleave(2).repeat(4).repeat(count)
    return 0.5 * (F.cross_entropy(scores[:, :2], row) + F.cross_entropy(scores[:, 2:], column))


def _cell_of_token(kind: str) -> Tensor:
    if kind == "single":
        return torch.zeros(4, dtype=torch.long)
    if kind == "grid":
        row = torch.arange(2).repeat_interleave(8)
        return row * 2 + torch.arange(2).repeat_interleave(2).repeat(4)
    return torch.arange(6).repeat_interleave(2).repeat(2)


def _words_of_tokens(
    encoder: Encoder, table: Tensor, kind: str, merged: Tensor, cells: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    """How far merged tokens (pictures, n, 128) are from their digit's word, and from their place's words."""
    labels = torch.from_numpy(cells)[:, _cell_of_token(kind)].reshape(-1)
    scores = _cosine(merged.reshape(len(labels), -1), table[encoder.digit_words])
    align = F.cross_entropy(scores, labels, ignore_index=-1)
    return align, table.new_zeros(()) if kind == "single" else _place_loss(merged, kind, table, encoder)


def look_losses(lean: Lean, batch: Batch, encoder: Encoder) -> Losses:
    """The alignment terms alone, without running the text model: the vision tower learns to look."""
    table = lean.text.embed_tokens.weight
    pairs = [
        _words_of_tokens(encoder, table, group.kind, lean.see(group.kind, group.patches)[0], cells)
        for group, cells in zip(batch.groups, batch.labels, strict=True)
    ]
    align, place = (torch.stack(terms).mean() for terms in zip(*pairs, strict=True))
    return Losses(table.new_zeros(()), align, place, table.new_zeros(()), {})


def measure_losses(lean: Lean, batch: Batch, output: Output, encoder: Encoder) -> Losses:
    """All terms of a batch.

    Args:
        lean: Gives logits and the embedding table.
        batch: What was asked.
        output: What the model answered.
        encoder: Knows the letters' and words' ids.
    """
    right: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    table = lean.text.embed_tokens.weight
    answers, align, place = [], [], []
    for g, group in enumerate(batch.groups):
        blocks = []
        for hidden, targets, questions in zip(output.hidden[g], batch.targets[g], batch.questions[g], strict=True):
            logits = lean.logits(hidden)
            losses = _token_losses(logits, targets, encoder.letters)
            blocks.append((losses * targets.weight).sum() / targets.weight.sum())
            _count(right, logits.detach(), targets, questions)
        answers.append(torch.stack(blocks).mean())  # the kinds of picture count alike
        terms = _words_of_tokens(encoder, table, group.kind, output.merged[g], batch.labels[g])
        align.append(terms[0])
        place.append(terms[1])
    mass = torch.stack(output.image_mass)
    return Losses(
        torch.stack(answers).mean(),
        torch.stack(align).mean(),
        torch.stack(place).mean(),
        (mass + 1e-4).sqrt().mean(),
        dict(right),
    )
