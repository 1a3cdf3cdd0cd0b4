"""How well a model answers: every skill on one split, with test-time pictures and greedy answers."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import data, wording
from .augment import Bank, Cells, cell_patches, grid_patches, single_patches, strip_patches
from .batches import distinct, framed, to_float
from .box import iou, parse_box
from .encode import Encoder
from .items import MAKERS, Question, Scene
from .lean import Block, Group, Lean

CHUNK = 120
GRID_TASKS = ("named", "marked", "find")
STRIP_TASKS = ("referring", "ordinal", "ordinal_mcq")
_BOX_TOKENS = 20


@dataclass(frozen=True)
class Letters:
    """Answers without evidence. accuracy: share of items whose most probable letter is the keyed one;
    mean: mean P of each letter; argmax: share of items in which each letter is the most probable."""

    accuracy: float
    mean: tuple[float, ...]
    argmax: tuple[float, ...]


@dataclass(frozen=True)
class Skills:
    """accuracy: share right for each skill; mismatched, blank: answers without evidence; probability: mean
    renormalised P of the right letter on matched pictures."""

    accuracy: dict[str, float]
    mismatched: Letters
    blank: Letters
    probability: float


class Examiner:
    """Asks a model about one split's digits."""

    def __init__(self, lean: Lean, encoder: Encoder, bank: Bank, seed: int) -> None:
        self._lean, self._encoder, self._bank = lean, encoder, bank
        self._rng = np.random.default_rng([seed, 3])

    def examine(self, count: int, boxes: int) -> Skills:
        """Run everything.

        Args:
            count: Items of each skill, a multiple of four.
            boxes: Items of each kind of picture for boxes.
        """
        accuracy: dict[str, float] = {}
        labels = np.arange(count) % 10
        cells = self._bank.draw(labels, self._rng)
        scenes = [Scene(labels[i : i + 1]) for i in range(count)]
        match = self._letters("matched", "single", single_patches(cells), scenes)
        accuracy["matched"] = match[0].accuracy
        strangers = self._letters("none", "single", single_patches(cells), scenes)
        uniform = np.asarray(data.blank((data.CELL, data.CELL)).convert("L"))[None].repeat(count, 0)
        blank = self._letters("matched", "single", single_patches(cell_patches(uniform)), scenes)
        accuracy["text"] = self._letters("text", "single", single_patches(cells), scenes)[0].accuracy
        for task in GRID_TASKS:
            patches, scenes = self._grids(count, task == "marked")
            accuracy[task] = self._exact(task, "grid", patches, scenes)
        for task in STRIP_TASKS:
            patches, scenes = self._strips(count)
            accuracy[task] = self._exact(task, "strip", patches, scenes)
        accuracy["box_grid"] = self._boxes("grid", *self._grids(boxes, False))
        accuracy["box_strip"] = self._boxes("strip", *self._strips(boxes))
        return Skills(accuracy, strangers[0], blank[0], match[1])

    def _grids(self, count: int, mark: bool) -> tuple[Cells, list[Scene]]:
        labels = distinct(count, 4, self._rng)
        marks: list[int | None] = [i % 4 if mark else None for i in range(count)]
        cells = framed(self._bank.draw(labels, self._rng), marks, self._bank)
        return grid_patches(cells), [Scene(row, m) for row, m in zip(labels, marks, strict=True)]

    def _strips(self, count: int) -> tuple[Cells, list[Scene]]:
        labels = distinct(count, 6, self._rng)
        return strip_patches(self._bank.draw(labels, self._rng)), [Scene(row) for row in labels]

    @torch.no_grad()
    def _scores(self, kind: str, patches: Cells, prompts: list[list[int]]) -> Tensor:
        """Next-token scores behind prompts of any lengths: (items, vocabulary)."""
        rows = []
        for start in range(0, len(prompts), CHUNK):
            part = prompts[start : start + CHUNK]
            length = max(map(len, part))
            ids = torch.tensor([prompt + [self._encoder.end] * (length - len(prompt)) for prompt in part])
            pictures = to_float(patches[start : start + CHUNK])
            last = torch.tensor([i * length + len(prompt) - 1 for i, prompt in enumerate(part)])
            hidden = self._lean.run([Group(kind, pictures, (Block(ids, 1, last),))]).hidden[0][0]
            rows.append(self._lean.logits(hidden))
        return torch.cat(rows)

    def _ask(self, task: str, scenes: list[Scene]) -> tuple[list[Question], list[list[int]]]:
        """Questions, balanced over the right letter, and their prompts."""
        questions = []
        for i, scene in enumerate(scenes):
            wanted = wording.LETTERS[i // 10 % 4] if i < len(scenes) // 40 * 40 else None
            question = MAKERS[task](self._rng, scene)
            is_letter = question.parts[0].text in wording.LETTERS
            while wanted is not None and is_letter and question.parts[0].text != wanted:
                question = MAKERS[task](self._rng, scene)
            questions.append(question)
        return questions, [list(self._encoder.prompt(question.text)) for question in questions]

    def _letters(self, task: str, kind: str, patches: Cells, scenes: list[Scene]) -> tuple[Letters, float]:
        questions, prompts = self._ask(task, scenes)
        chances = self._scores(kind, patches, prompts)[:, self._encoder.letters].softmax(-1)
        correct = torch.tensor([wording.LETTERS.index(question.parts[0].text) for question in questions])
        best = chances.argmax(-1)
        shares = tuple(float((best == letter).float().mean()) for letter in range(4))
        mean = tuple(chances.mean(0).tolist())
        right = chances.gather(1, correct[:, None]).mean()
        return Letters(float((best == correct).float().mean()), mean, shares), float(right)

    def _exact(self, task: str, kind: str, patches: Cells, scenes: list[Scene]) -> float:
        questions, prompts = self._ask(task, scenes)
        wanted = torch.tensor([self._encoder.ids(question.parts[0].text)[0] for question in questions])
        return float((self._scores(kind, patches, prompts).argmax(-1) == wanted).float().mean())

    def _boxes(self, kind: str, patches: Cells, scenes: list[Scene]) -> float:
        questions, prompts = self._ask("box", scenes)
        answers: list[list[int]] = [[] for _ in prompts]
        for _ in range(_BOX_TOKENS):
            whole = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
            chosen = self._scores(kind, patches, whole).argmax(-1).tolist()
            for answer, token in zip(answers, chosen, strict=True):
                if not answer or answer[-1] != self._encoder.end:
                    answer.append(token)
            if all(answer[-1] == self._encoder.end for answer in answers):
                break
        hits: list[bool] = []
        for question, answer in zip(questions, answers, strict=True):
            found = parse_box(self._encoder.text(answer))
            truth = parse_box(question.parts[0].text)
            hits.append(found is not None and truth is not None and iou(found, truth) > 0.5)
        return float(np.mean(hits))
