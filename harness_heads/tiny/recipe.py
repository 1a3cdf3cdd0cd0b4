"""The training recipe: every number of it, and what is trained when."""

from dataclasses import dataclass
from math import cos, pi

Mixture = dict[str, float]


@dataclass(frozen=True)
class Ask:
    """Questions of similar length about one picture. mixture: Shares of the tasks; each: Questions a picture."""

    mixture: Mixture
    each: int


@dataclass(frozen=True)
class Stage:
    """What is asked from one step on.

    until: Step at which the stage ends.
    single: Shares of the tasks about single digits, one question a picture; grid, strip: Questions about those.
    """

    until: int
    single: Mixture
    grid: tuple[Ask, ...] = ()
    strip: tuple[Ask, ...] = ()


STAGES = (
    # letters are bound to options before there is much to see
    Stage(571, {"word": 0.35, "match": 0.4, "text": 0.25}),
    # dense tasks: several answers a picture
    Stage(
        1001,
        {"matched": 0.46, "none": 0.24, "text": 0.2, "word": 0.1},
        (
            Ask({"digits_of_cells": 0.5, "cells_of_digits": 0.5}, 2),
            Ask({"named": 0.35, "marked": 0.25, "find": 0.3, "box": 0.1}, 1),
        ),
        (
            Ask({"digits_of_panels": 0.6, "panels_of_digits": 0.4}, 2),
            Ask({"ordinal": 0.6, "referring": 0.4}, 1),
            Ask({"ordinal_mcq": 0.75, "box": 0.25}, 1),
        ),
    ),
    # what the model is for
    Stage(
        10**9,
        {"matched": 0.45, "none": 0.38, "text": 0.14, "word": 0.03},
        (Ask({"named": 0.25, "marked": 0.25, "find": 0.35, "box": 0.11, "ambiguous": 0.04}, 3),),
        (Ask({"ordinal": 0.55, "referring": 0.45}, 4), Ask({"ordinal_mcq": 0.65, "box": 0.35}, 1)),
    ),
)


@dataclass(frozen=True)
class Recipe:
    """All settings of a training run but the seed; times are steps.

    steps: Optimizer steps.
    look_steps: First steps, in which the vision tower alone learns to align its tokens, without any question.
    look_singles, look_scenes: Pictures a step then: single digits, and grids and strips each.
    singles, grids, strips: Pictures a step; first_singles: single pictures a step while there is nothing else.
    rate, warm_up, hold, cycle: Peak learning rate, its warm-up, when it starts to fall along a cosine, and when that
        cosine would end; floor: end of a cosine as a share of its peak.
    patch_rate: Factor on the patch embedding's rate (its six equal kernels move together).
    decay, clip: Weight decay and gradient norm.
    renders: Augmented renders of each training digit.
    mimetic: Key/value heads of each layer that start as same-token matchers.
    align, place: Weights of the losses that tie merged image tokens to digit and place words.
    align_fade: Steps between which both weights go linearly to zero.
    deep_until: Until then the first layers are often blind: what is learnt to be read in a deep layer is easily read
        earlier too, while the reverse is slow.
    deep_single, deep_scene: (share, most layers): share of single pictures, and of grids and strips, whose image keys
        are then hidden in one or more first layers, up to the most, all equally often.
    blind_one, blind_two: After that, share of single pictures with image keys hidden in one, or two, random layers.
    blind_scene: The share of grids and strips with one such layer.
    late_until, late_share: Until then, in that share of the questions about digits and grids, the rows behind the user
        turn see nothing of it in the first three layers: the answer is put together in the last three, so that
        whatever the options' rows read in any of the first three is in time for it.
    narrow_from: From then on heads are made few: ``sparse`` and ``scatter`` act.
    sparse: Weight of the penalty on the square root of each head's mean image attention, uniform over heads.
    scatter, scatter_most: Share of single pictures whose image keys are hidden from heads drawn one by one from all
        layers, each with the same chance, itself drawn between zero and the most.
    again_from, again_until: Between these steps the first layer is blind in shares ``again_single`` and
        ``again_scene`` of the pictures, so that the few heads have deeper ones beside them.
    again_rate, again_hold: Learning rate from ``again_from`` to ``again_hold``; then a cosine to ``settle_from``.
    again_sparse: Weight of the penalty from ``again_from`` to ``settle_from``.
    settle_from, settle_rate: The last part, with a learning rate that falls along a cosine to the end: no whole
        layer is blind to single pictures any more, so that the deeper ones are less needed.
    settle_sparse: Weight of the penalty then.
    """

    steps: int = 2150
    look_steps: int = 400
    look_singles: int = 48
    look_scenes: int = 8
    singles: int = 32
    first_singles: int = 56
    grids: int = 8
    strips: int = 8
    rate: float = 2e-3
    warm_up: int = 60
    hold: int = 1260
    cycle: int = 1750
    floor: float = 0.02
    patch_rate: float = 0.3
    decay: float = 0.02
    clip: float = 1.0
    renders: int = 16
    mimetic: int = 3
    align: float = 1.0
    place: float = 0.5
    align_fade: tuple[float, float] = (1137.5, 1487.5)
    deep_until: int = 902
    deep_single: tuple[float, int] = (0.5, 2)
    deep_scene: tuple[float, int] = (0.3, 1)
    blind_one: float = 0.35
    blind_two: float = 0.1
    blind_scene: float = 0.12
    late_until: int = 1050
    late_share: float = 0.85
    narrow_from: int = 1199
    sparse: float = 0.3
    scatter: float = 0.5
    scatter_most: float = 0.6
    again_from: int = 1400
    again_until: int = 1600
    again_single: float = 0.5
    again_scene: float = 0.4
    again_rate: float = 1.5e-3
    again_hold: int = 1700
    again_sparse: float = 0.05
    settle_from: int = 2000
    settle_rate: float = 6e-4
    settle_sparse: float = 0.5


def _cosine(progress: float, floor: float) -> float:
    return floor + (1 - floor) * 0.5 * (1 + cos(pi * min(1.0, max(0.0, progress))))


def learning_rate(recipe: Recipe, step: int) -> float:
    """Learning rate at a step: warm-up, constant, a cosine cut short; then lower again, constant, and a cosine."""
    if step >= recipe.settle_from:
        length = max(1, recipe.steps - recipe.settle_from)
        return recipe.settle_rate * _cosine((step - recipe.settle_from) / length, recipe.floor)
    if step >= recipe.again_from:
        length = max(1, recipe.settle_from - recipe.again_hold)
        return recipe.again_rate * _cosine((step - recipe.again_hold) / length, recipe.floor)
    if step < recipe.warm_up:
        return recipe.rate * (step + 1) / recipe.warm_up
    return recipe.rate * _cosine((step - recipe.hold) / max(1, recipe.cycle - recipe.hold), recipe.floor)


def alignment(recipe: Recipe, step: int) -> float:
    """Factor 1..0 on the alignment losses at a step."""
    start, end = recipe.align_fade
    return min(1.0, max(0.0, (end - step) / (end - start)))


def sparsity(recipe: Recipe, step: int) -> float:
    """Weight of the sparsity penalty at a step."""
    if step < recipe.narrow_from:
        return 0.0
    if step < recipe.again_from:
        return recipe.sparse
    return recipe.again_sparse if step < recipe.settle_from else recipe.settle_sparse


def stage_at(step: int) -> Stage:
    """The stage that a step belongs to."""
    return next(stage for stage in STAGES if step < stage.until or stage is STAGES[-1])
