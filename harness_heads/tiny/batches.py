"""One optimizer step's pictures, questions and wanted answers."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .architecture import LAYERS
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


def blind_first(count: int, share: float, depth: int, rng: np.random.Generator) -> Tensor:
    """The first layers' image keys hidden in a share of the pictures: (count, layers, 1) bool."""
    cut = torch.zeros(count, LAYERS, 1, dtype=torch.bool)
    cut[torch.from_numpy(rng.random(count) < share), :depth] = True
    return cut


def draw_cuts(recipe: Recipe, step: int, single: bool, count: int, rng: np.random.Generator) -> Tensor:
    """Which layers are blind for each picture at a step: (count, layers, 1) bool."""
    if step < recipe.deep_until * recipe.steps:
        share, depth = recipe.deep_single if single else recipe.deep_scene
        return blind_first(count, share, depth, rng)
    one, two = (recipe.blind_one, recipe.blind_two) if single else (recipe.blind_scene, 0.0)
    return blind_layers(count, one, two, rng)


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


def make_batch(recipe: Recipe, step: int, bank: Bank, encoder: Encoder, rng: np.random.Generator) -> Batch:
    """Draw the batch of a step by its stage's mixture."""
    stage = stage_at(recipe, step)
    batch = Batch([], [], [], [])
    first = not stage.grid
    tasks = draw_tasks(stage.single, recipe.first_singles if first else recipe.singles, rng)
    cells, labels = single_scenes(tasks, bank, rng)
    scenes = [Scene(labels[i : i + 1]) for i in range(len(tasks))]
    _add(
        batch,
        "single",
        single_patches(cells),
        scenes,
        [(tasks, 1)],
        draw_cuts(recipe, step, True, len(tasks), rng),
        encoder,
        rng,
    )
    if first:
        return batch
    labels = distinct(recipe.grids, 4, rng)
    marks = [int(rng.integers(4)) if rng.random() < MARKED_SHARE else None for _ in labels]
    scenes = [Scene(row, mark) for row, mark in zip(labels, marks, strict=True)]
    plan = [(draw_tasks(ask.mixture, recipe.grids * ask.each, rng), ask.each) for ask in stage.grid]
    cut = draw_cuts(recipe, step, False, recipe.grids, rng)
    _add(batch, "grid", grid_patches(framed(bank.draw(labels, rng), marks, bank)), scenes, plan, cut, encoder, rng)
    labels = distinct(recipe.strips, 6, rng)
    scenes = [Scene(row) for row in labels]
    plan = [(draw_tasks(ask.mixture, recipe.strips * ask.each, rng), ask.each) for ask in stage.strip]
    cut = draw_cuts(recipe, step, False, recipe.strips, rng)
    _add(batch, "strip", strip_patches(bank.draw(labels, rng)), scenes, plan, cut, encoder, rng)
    return batch


def _add(
    batch: Batch,
    kind: str,
    patches: Cells,
    scenes: list[Scene],
    plan: list[tuple[list[str], int]],
    cut: Tensor,
    encoder: Encoder,
    rng: np.random.Generator,
) -> None:
    blocks, asked, wanted = [], [], []
    for tasks, each in plan:
        questions = [MAKERS[task](rng, scenes[i // each]) for i, task in enumerate(tasks)]
        ids, targets = encoder.block(questions)
        blocks.append(Block(ids, each, targets.question * ids.shape[1] + targets.position))
        asked.append(questions)
        wanted.append(targets)
    batch.groups.append(Group(kind, to_float(patches), tuple(blocks), cut))
    batch.questions.append(asked)
    batch.targets.append(wanted)
    batch.labels.append(np.stack([scene.labels for scene in scenes]))
