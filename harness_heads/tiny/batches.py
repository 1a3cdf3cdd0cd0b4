"""One optimizer step's pictures, questions and wanted answers."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .architecture import HEADS, LAYERS
from .augment import (
    Bank,
    Cells,
    flat_cells,
    grid_patches,
    noise_cells,
    single_patches,
    strip_patches,
)
from .encode import Encoder, Targets
from .items import MAKERS, Question, Scene
from .lean import Block, Group
from .recipe import Mixture, Recipe, stage_at

MARKED_SHARE = 0.5


@dataclass(frozen=True)
class Batch:
    """groups: What the model sees; questions and targets: Per group, per block; labels: Per group, (pictures, cells)
    digit of each cell, -1 for none."""

    groups: list[Group]
    questions: list[list[list[Question]]]
    targets: list[list[Targets]]
    labels: list[NDArray[np.int64]]


def to_float(patches: Cells) -> Tensor:
    """Bytes to the processor's values in -1..1."""
    return torch.from_numpy(np.ascontiguousarray(patches)).float().div_(127.5).sub_(1.0)


def blind_layers(count: int, one: float, two: float, rng: np.random.Generator) -> Tensor:
    """Uniformly drawn layers whose image keys are hidden from all heads.

    Args:
        count: Pictures.
        one: Share with one such layer.
        two: Share with two.
        rng: Draws.

    Returns:
        (count, layers, 1) bool.
    """
    cut = torch.zeros(count, LAYERS, 1, dtype=torch.bool)
    for i, u in enumerate(rng.random(count)):
        layers = 1 if u < one else 2 if u < one + two else 0
        cut[i, rng.choice(LAYERS, size=layers, replace=False)] = True
    return cut


def blind_first(count: int, share: float, most: int, rng: np.random.Generator) -> Tensor:
    """Image keys hidden in the first 1 to ``most`` layers in a share of the pictures: (count, layers, 1) bool."""
    depths = np.where(rng.random(count) < share, rng.integers(1, most + 1, size=count), 0)
    return torch.from_numpy(np.arange(LAYERS) < depths[:, None])[..., None]


def blind_scattered(count: int, share: float, most: float, rng: np.random.Generator) -> Tensor:
    """Heads drawn one by one, in a share of the pictures, each with one chance: (count, layers, heads)."""
    chance = np.where(rng.random(count) < share, rng.uniform(0, most, size=count), 0.0)
    return torch.from_numpy(rng.random((count, LAYERS, HEADS)) < chance[:, None, None])


def late_rows(tail: Tensor, share: float, rng: np.random.Generator) -> Tensor | None:
    """The tails (questions, T) of a share of the questions; None when the share is nothing."""
    if share <= 0:
        return None
    return tail & torch.from_numpy(rng.random(len(tail)) < share)[:, None]


def draw_cuts(recipe: Recipe, step: int, single: bool, count: int, rng: np.random.Generator) -> Tensor:
    """Which heads are blind for each picture at a step: (count, layers, heads or 1) bool."""
    if step < recipe.deep_until:
        share, most = recipe.deep_single if single else recipe.deep_scene
        return blind_first(count, share, most, rng)
    one, two = (recipe.blind_one, recipe.blind_two) if step < recipe.settle_from else (0.0, 0.0)
    if recipe.again_from <= step < recipe.again_until:
        cut = blind_first(count, recipe.again_single if single else recipe.again_scene, 1, rng)
    elif single:
        cut = blind_layers(count, one, two, rng)
    else:
        cut = blind_layers(count, recipe.blind_scene, 0.0, rng)
    if step < recipe.narrow_from or not single:
        return cut
    return cut | blind_scattered(count, recipe.scatter, recipe.scatter_most, rng)


def draw_tasks(mixture: Mixture, count: int, rng: np.random.Generator) -> list[str]:
    """Task names by their shares."""
    names = list(mixture)
    shares = np.array([mixture[name] for name in names])
    return [names[i] for i in rng.choice(len(names), size=count, p=shares / shares.sum())]


def distinct(count: int, cells: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Different digits for the cells of each picture: (count, cells)."""
    return rng.random((count, 10)).argsort(1)[:, :cells]


def framed(cells: Cells, marks: list[int | None], bank: Bank) -> Cells:
    """Grids' cells with the frame drawn round the marked ones (in place)."""
    for picture, cell in enumerate(marks):
        if cell is not None:
            cells[picture, cell][bank.frame] = 255
    return cells


def single_scenes(tasks: list[str], bank: Bank, rng: np.random.Generator) -> tuple[Cells, NDArray[np.int64]]:
    """Pictures for questions about one digit; a third of the unanswerable ones show no digit at all."""
    labels = rng.integers(10, size=len(tasks))
    cells = bank.draw(labels, rng)
    for i, task in enumerate(tasks):
        share = {"none": 0.5, "text": 0.25}.get(task, 0.0)
        if rng.random() < share:
            make = noise_cells if rng.random() < 0.3 else flat_cells
            cells[i], labels[i] = make(1, rng)[0], -1
    return cells, labels


class _Draft:
    """A batch in the making."""

    def __init__(self, recipe: Recipe, step: int, encoder: Encoder, rng: np.random.Generator) -> None:
        self._recipe, self._step, self._encoder, self._rng = recipe, step, encoder, rng
        self._late = recipe.late_share if step < recipe.late_until else 0.0
        self.batch = Batch([], [], [], [])

    def add(self, kind: str, patches: Cells, scenes: list[Scene], plan: list[tuple[list[str], int]]) -> None:
        """Ask each list of tasks, so many a picture, about the pictures."""
        blocks, asked, wanted = [], [], []
        for tasks, each in plan:
            questions = [MAKERS[task](self._rng, scenes[i // each]) for i, task in enumerate(tasks)]
            ids, targets = self._encoder.block(questions)
            rows = targets.question * ids.shape[1] + targets.position
            late = 0.0 if kind == "strip" else self._late
            blocks.append(Block(ids, each, rows, late_rows(targets.tail, late, self._rng)))
            asked.append(questions)
            wanted.append(targets)
        cut = draw_cuts(self._recipe, self._step, kind == "single", len(scenes), self._rng)
        self.batch.groups.append(Group(kind, to_float(patches), tuple(blocks), cut))
        self.batch.questions.append(asked)
        self.batch.targets.append(wanted)
        self.batch.labels.append(np.stack([scene.labels for scene in scenes]))


def make_pictures(recipe: Recipe, bank: Bank, rng: np.random.Generator) -> Batch:
    """Pictures of the three kinds without any question."""
    labels = [rng.integers(10, size=(recipe.look_singles, 1)), *(distinct(recipe.look_scenes, n, rng) for n in (4, 6))]
    single, grid, strip = (bank.draw(row, rng) for row in labels)
    groups = [
        Group("single", to_float(single_patches(single[:, 0])), ()),
        Group("grid", to_float(grid_patches(grid)), ()),
        Group("strip", to_float(strip_patches(strip)), ()),
    ]
    return Batch(groups, [], [], labels)


def make_batch(recipe: Recipe, step: int, bank: Bank, encoder: Encoder, rng: np.random.Generator) -> Batch:
    """Draw the batch of a step by its stage's mixture."""
    stage = stage_at(step)
    draft = _Draft(recipe, step, encoder, rng)
    tasks = draw_tasks(stage.single, recipe.singles if stage.grid else recipe.first_singles, rng)
    cells, labels = single_scenes(tasks, bank, rng)
    draft.add("single", single_patches(cells), [Scene(label) for label in labels[:, None]], [(tasks, 1)])
    if stage.grid:
        labels = distinct(recipe.grids, 4, rng)
        marks = [int(rng.integers(4)) if rng.random() < MARKED_SHARE else None for _ in labels]
        scenes = [Scene(row, mark) for row, mark in zip(labels, marks, strict=True)]
        plan = [(draw_tasks(ask.mixture, recipe.grids * ask.each, rng), ask.each) for ask in stage.grid]
        draft.add("grid", grid_patches(framed(bank.draw(labels, rng), marks, bank)), scenes, plan)
    if stage.strip:
        labels = distinct(recipe.strips, 6, rng)
        plan = [(draw_tasks(ask.mixture, recipe.strips * ask.each, rng), ask.each) for ask in stage.strip]
        draft.add("strip", strip_patches(bank.draw(labels, rng)), [Scene(row) for row in labels], plan)
    return draft.batch
