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

    until: Fraction of all steps at which the stage ends.
    single: Shares of the tasks about single digits, one question a picture; grid, strip: Questions about those.
    """

    until: float
    single: Mixture
    grid: tuple[Ask, ...] = ()
    strip: tuple[Ask, ...] = ()


STAGES = (
    # letters are bound to options before there is much to see
    Stage(0.35, {"word": 0.35, "match": 0.4, "text": 0.25}),
    # dense tasks: several answers a picture
    Stage(
        0.65,
        {"matched": 0.46, "none": 0.24, "text": 0.2, "word": 0.1},
        (
            Ask({"digits_of_cells": 0.25, "cells_of_digits": 0.2, "match_cells": 0.3, "match_finds": 0.25}, 2),
            Ask({"named": 0.35, "marked": 0.35, "find": 0.2, "box": 0.1}, 1),
        ),
        (
            Ask({"digits_of_panels": 0.6, "panels_of_digits": 0.4}, 2),
            Ask({"ordinal": 0.6, "referring": 0.4}, 1),
            Ask({"ordinal_mcq": 0.75, "box": 0.25}, 1),
        ),
    ),
    # what the model is for
    Stage(
        1.0,
        {"matched": 0.45, "none": 0.38, "text": 0.14, "word": 0.03},
        (Ask({"named": 0.27, "marked": 0.27, "find": 0.24, "box": 0.17, "ambiguous": 0.05}, 3),),
        (Ask({"ordinal": 0.55, "referring": 0.45}, 4), Ask({"ordinal_mcq": 0.5, "box": 0.5}, 1)),
    ),
)


@dataclass(frozen=True)
class Recipe:
    """All settings of a training run but the seed.

    steps: Optimizer steps.
    look_steps: First steps, in which the vision tower alone learns to align its tokens, without any question.
    look_singles, look_scenes: Pictures a step then: single digits, and grids and strips each.
    singles, grids, strips: Pictures a step; first_singles: single pictures a step while there is nothing else.
    rate, warm_up, hold, floor: Peak learning rate, steps of warm-up, fraction of steps before the cosine, its end.
    patch_rate: Factor on the patch embedding's rate (its six equal kernels move together).
    decay, clip: Weight decay and gradient norm.
    renders: Augmented renders of each training digit.
    mimetic: Key/value heads of each layer that start as same-token matchers.
    align, place: Weights of the losses that tie merged image tokens to digit and place words.
    align_fade: Fractions of the steps between which both weights go linearly to zero.
    deep_until: Fraction of the steps in which the first layers are often blind: what is learnt to be read in a deep
        layer is easily read earlier too, while the reverse is slow.
    deep_single, deep_scene: (share, most layers): share of single pictures, and of grids and strips, whose image keys
        are then hidden in one or more first layers, up to the most, all equally often.
    blind_one, blind_two: After that, share of single pictures with image keys hidden in one, or two, random layers.
    blind_scene: The share of grids and strips with one such layer.
    scatter, scatter_most: After ``sparse_from``, share of single pictures whose image keys are hidden from heads drawn
        one by one from all layers, each with the same chance, itself drawn between zero and the most.
    late_until, late_share: Fraction of the steps in which, and share of questions in whose first three layers, the rows
        behind the user turn see nothing of it: so the answer is put together in the last three layers, and what the
        options' rows read in any of the first three is in time for it.
    sparse: Weight of the penalty on the square root of each head's mean image attention, uniform over heads.
    sparse_from: Fraction of the steps before which there is no such penalty: first the reading must be learnt.
    """

    steps: int = 1950
    look_steps: int = 450
    look_singles: int = 48
    look_scenes: int = 8
    singles: int = 32
    first_singles: int = 56
    grids: int = 8
    strips: int = 8
    rate: float = 2e-3
    warm_up: int = 60
    hold: float = 0.6
    floor: float = 0.02
    patch_rate: float = 0.3
    decay: float = 0.02
    clip: float = 1.0
    renders: int = 16
    mimetic: int = 3
    align: float = 1.0
    place: float = 0.5
    align_fade: tuple[float, float] = (0.65, 0.85)
    deep_until: float = 0.48
    deep_single: tuple[float, int] = (0.5, 2)
    deep_scene: tuple[float, int] = (0.3, 1)
    blind_one: float = 0.25
    blind_two: float = 0.05
    blind_scene: float = 0.12
    scatter: float = 0.5
    scatter_most: float = 0.6
    late_until: float = 0.7
    late_share: float = 0.0
    sparse: float = 0.3
    sparse_from: float = 0.55


def learning_rate(recipe: Recipe, step: int) -> float:
    """Learning rate at a step: linear warm-up, constant, then a cosine down to the floor."""
    if step < recipe.warm_up:
        return recipe.rate * (step + 1) / recipe.warm_up
    held = recipe.hold * recipe.steps
    if step < held:
        return recipe.rate
    progress = (step - held) / max(1.0, recipe.steps - held)
    return recipe.rate * (recipe.floor + (1 - recipe.floor) * 0.5 * (1 + cos(pi * progress)))


def alignment(recipe: Recipe, step: int) -> float:
    """Factor 1..0 on the alignment losses at a step."""
    start, end = (fraction * recipe.steps for fraction in recipe.align_fade)
    return min(1.0, max(0.0, (end - step) / (end - start)))


def stage_at(recipe: Recipe, step: int) -> Stage:
    """The stage that a step belongs to."""
    return next(stage for stage in STAGES if step < stage.until * recipe.steps or stage is STAGES[-1])
