"""Measurements on a model in the making: answers, cuts of whole layers, and the necessity of ranked heads.

Everything here runs on the lean forward pass; the same functions serve the training log and the choice of a seed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import wording
from .architecture import HEADS, LAYERS
from .augment import Bank, single_patches, strip_patches
from .batches import distinct, to_float
from .encode import Encoder
from .items import Scene, matched
from .lean import Block, Group, Lean

Head = tuple[int, int]


@dataclass(frozen=True)
class Pairs:
    """Matched and mismatched pictures with the same question: groups of n pictures, and the right letters (n,)."""

    match: Group
    mismatch: Group
    correct: Tensor


def make_pairs(bank: Bank, encoder: Encoder, count: int, rng: np.random.Generator) -> Pairs:
    """Draw items: four options, a picture of the right one, and a picture of a digit that is none of them."""
    labels, strangers, texts, correct = [], [], [], []
    for _ in range(count):
        digit = int(rng.integers(10))
        question = matched(rng, Scene(np.array([digit])))
        shown = [d for d in range(10) if wording.DIGITS[d] not in question.text.replace("\n", " ").split(" ")]
        labels.append(digit)
        strangers.append(int(rng.choice(shown)))
        texts.append(question.text)
        correct.append(wording.LETTERS.index(question.parts[0].text))
    ids = prompt_block(encoder, texts)
    block = (Block(ids, 1, last_rows(ids)),)
    groups = [
        Group("single", to_float(single_patches(bank.draw(np.array(which), rng))), block)
        for which in (labels, strangers)
    ]
    return Pairs(groups[0], groups[1], torch.tensor(correct))


def prompt_block(encoder: Encoder, texts: list[str]) -> Tensor:
    """Ids of prompts of one length.

    Raises:
        ValueError: The prompts differ in length.
    """
    prompts = [encoder.prompt(text) for text in texts]
    if len({len(prompt) for prompt in prompts}) != 1:
        raise ValueError("the prompts of a block must have the same number of tokens")
    return torch.tensor(prompts)


def last_rows(ids: Tensor) -> Tensor:
    """Flat positions of the last token of each row of ids (n, T)."""
    return torch.arange(1, len(ids) + 1) * ids.shape[1] - 1


@torch.no_grad()
def letter_probabilities(lean: Lean, encoder: Encoder, group: Group, cut: Tensor | None = None) -> Tensor:
    """P of each letter at the last prompt row, renormalised over the four: (questions, 4)."""
    asked = Group(group.kind, group.patches, group.blocks, cut)
    hidden = lean.run([asked]).hidden[0][0]
    return lean.logits(hidden)[:, encoder.letters].softmax(-1)


def cut_of(heads: list[Head]) -> Tensor:
    """Bool (1, layers, heads), true at the given (layer, head) pairs."""
    cut = torch.zeros(1, LAYERS, HEADS, dtype=torch.bool)
    for layer, head in heads:
        cut[0, layer, head] = True
    return cut


class Necessity:
    """NCS of head sets on fixed items."""

    def __init__(self, lean: Lean, encoder: Encoder, pairs: Pairs) -> None:
        self._lean, self._encoder, self._pairs = lean, encoder, pairs
        self.match = self._correct(pairs.match, None)
        self.mismatch = self._correct(pairs.mismatch, None)

    def _correct(self, group: Group, cut: Tensor | None) -> Tensor:
        probabilities = letter_probabilities(self._lean, self._encoder, group, cut)
        return probabilities.gather(1, self._pairs.correct[:, None])[:, 0]

    @property
    def headroom(self) -> float:
        """Mean P(c) on matched minus on mismatched pictures, uncut."""
        return float((self.match - self.mismatch).mean())

    def items(self, heads: list[Head]) -> NDArray[np.float64]:
        """Per item: drop of P(c) on the matched picture minus the drop on the mismatched one, heads cut."""
        cut = cut_of(heads)
        drop = self.match - self._correct(self._pairs.match, cut)
        other = self.mismatch - self._correct(self._pairs.mismatch, cut)
        return (drop - other).double().numpy()

    def score(self, heads: list[Head]) -> float:
        """NCS: the mean over items."""
        return float(self.items(heads).mean())

    def kept(self, layer: int) -> float:
        """Share of the headroom that remains with image keys cut from all heads of a layer."""
        return 1 - self.score([(layer, head) for head in range(HEADS)]) / self.headroom


@dataclass(frozen=True)
class Scores:
    """Mean attention on the right panel, (layers, heads) each.

    referring: Referring query, rows of the phrase; ordinal_last: ordinal query, last prompt row.
    """

    referring: NDArray[np.float64]
    ordinal_last: NDArray[np.float64]


@torch.no_grad()
def rank_scores(lean: Lean, encoder: Encoder, bank: Bank, strips: int, rng: np.random.Generator) -> Scores:
    """Attention scores on random strips, all six queries of both kinds on each."""
    labels = distinct(strips, 6, rng)
    patches = to_float(strip_patches(bank.draw(labels, rng)))
    asked = [wording.referring(int(d)) for row in labels for d in row]
    phrase = encoder.ids("the digit")  # only its length counts
    start = len(encoder.ids("Which panel shows"))
    rows = slice(start, start + len(phrase) + 1)
    places = [wording.ordinal(panel) for _ in labels for panel in range(6)]
    blocks = (Block(prompt_block(encoder, asked), 6), Block(prompt_block(encoder, places), 6))
    panel_of_token = torch.arange(6).repeat_interleave(2).repeat(2)
    target = (panel_of_token[None] == torch.arange(6)[:, None]).float().repeat(strips, 1)
    referring, last = torch.zeros(LAYERS, HEADS), torch.zeros(LAYERS, HEADS)

    def capture(layer: int, group: int, block: int, mass: Tensor) -> None:
        on_target = torch.einsum("qhtn,qn->qht", mass, target)
        if block == 0:
            referring[layer] = on_target[:, :, rows].mean((0, 2))
        else:
            last[layer] = on_target[:, :, -1].mean(0)

    lean.run([Group("strip", patches, blocks)], capture)
    return Scores(referring.double().numpy(), last.double().numpy())


def top(scores: NDArray[np.float64], count: int) -> list[Head]:
    """The heads with the highest scores; ties by layer and head."""
    order = np.argsort(-scores.ravel(), kind="stable")[:count]
    return [(int(i) // HEADS, int(i) % HEADS) for i in order]


def layer_matched(heads: list[Head], rng: np.random.Generator) -> list[Head]:
    """A random set with as many heads in each layer, drawn from all heads of the layer, not equal to the set."""
    while True:
        drawn: list[Head] = []
        for layer in range(LAYERS):
            count = sum(1 for other, _ in heads if other == layer)
            drawn += [(layer, int(h)) for h in rng.choice(HEADS, size=count, replace=False)]
        if set(drawn) != set(heads):
            return drawn
