"""The engine against the float64 oracle, over families, operations, rows, ways of running, images and padding."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import Spec, float64_throughout, run_oracle
from tiny_models import BUILDERS, Case, build, by_hand

from harness_heads.conditions import Condition
from harness_heads.engine import Engine
from harness_heads.heads import Head, HeadSet, ModelRef
from harness_heads.interventions import resolve
from harness_heads.regions import Region

FACTORS: dict[str, tuple[str, ...]] = {
    "family": tuple(BUILDERS),
    "op": (
        "mask",
        "mask region",
        "mask text",
        "mask keep_self",
        "steer 1.5",
        "steer 1e4",
        "steer hard",
        "zero",
        "uniform",
    ),
    "rows": ("all", "image", "question", "last", "question+last", "prefix+tail"),
    "way": ("batch", "replay", "context"),
    "images": ("1", "2"),
    "padding": ("no", "left"),
}
TOLERANCE = 1e-9
SMALLEST_EFFECT = 1e-4


def covering_array(
    factors: dict[str, tuple[str, ...]], valid: Callable[[dict[str, str]], bool]
) -> list[dict[str, str]]:
    """Cases in which every pair of factor values that can occur does occur (greedy, in a fixed order)."""
    every = [case for case in product_of(factors) if valid(case)]
    numbers: dict[Any, int] = {}
    pairs = [
        [numbers.setdefault(pair, len(numbers)) for pair in itertools.combinations(case.items(), 2)] for case in every
    ]
    missing = bytearray([1] * len(numbers))
    walk = [(i * 7919) % len(every) for i in range(len(every))]  # does not follow the product's own order
    chosen: list[dict[str, str]] = []
    while any(missing):
        start = len(chosen) % 8
        best = max(walk[start::8], key=lambda i: sum(missing[p] for p in pairs[i]))
        if not any(missing[p] for p in pairs[best]):
            best = max(walk, key=lambda i: sum(missing[p] for p in pairs[i]))
        chosen.append(every[best])
        for p in pairs[best]:
            missing[p] = 0
    return chosen


def product_of(factors: dict[str, tuple[str, ...]]) -> list[dict[str, str]]:
    """Every combination of factor values."""
    return [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]


def valid(case: dict[str, str]) -> bool:
    """Leave out padding in the engine (it runs one prompt, unpadded) and ``keep_self`` without image rows."""
    if case["padding"] == "left" and case["way"] != "context":
        return False
    return case["op"] != "mask keep_self" or case["rows"] in ("all", "image")


PAIRWISE = covering_array(FACTORS, valid)


def name_of(case: dict[str, str]) -> str:
    return "-".join(case.values()).replace(" ", "_")


_CASES: dict[tuple[str, str], Case] = {}


def tiny(family: str, images: str) -> Case:
    if (family, images) not in _CASES:
        _CASES[family, images] = build(family, int(images), seed=3, dtype=torch.float64)
    return _CASES[family, images]


def condition_of(case: dict[str, str]) -> Condition:
    word, _, rest = case["op"].partition(" ")
    rows = tuple(case["rows"].split("+"))
    if word == "mask":
        keys = {"region": "box", "text": "text"}.get(rest, "image")
        return Condition("mask", keys, rows, keep_self=rest == "keep_self")
    if word == "steer":
        return Condition("steer", "box", rows, "hard" if rest == "hard" else float(rest))
    return Condition("ablate", "", rows, ablation=word)


def spec_of(condition: Condition, heads: tuple[Head, ...], case: Case, region_keys: set[int], shift: int = 0) -> Spec:
    hand = by_hand(case)
    rows = set().union(*(hand[group] for group in condition.rows))
    keys = {"image": hand["image keys"], "text": hand["text keys"], "box": region_keys, "": set()}[condition.keys]
    others = hand["image keys"] - keys if condition.op == "steer" else set()
    op = condition.ablation if condition.op == "ablate" else condition.op

    def moved(positions: set[int]) -> frozenset[int]:
        return frozenset(p + shift for p in positions)

    pairs = tuple((h.layer, h.head) for h in heads)
    return Spec(op, pairs, moved(rows), moved(keys), moved(others), condition.beta, condition.keep_self)


def some_heads(engine: Engine, seed: int) -> tuple[Head, ...]:
    """Some heads, among them two of one key/value group in the last layer with heads and one of the first."""
    every = list(engine.geometry.all_heads())
    draw = torch.Generator().manual_seed(seed)
    picked = [every[i] for i in torch.randperm(len(every), generator=draw)[:3].tolist()]
    top, bottom = max(h.layer for h in every), min(h.layer for h in every)
    return tuple(dict.fromkeys([*picked, Head(top, 0), Head(top, 1), Head(bottom, 2)]))


def left_padded(case: Case, pad: int) -> dict[str, Any]:
    """The prompt alone in a batch of one, padded on the left."""
    ids = case.inputs["input_ids"]
    inputs = dict(case.inputs)
    for key, value in case.inputs.items():
        if isinstance(value, torch.Tensor) and value.shape == ids.shape:
            inputs[key] = torch.cat([torch.zeros(1, pad, dtype=value.dtype), value], dim=1)
    return inputs


def check(case: dict[str, str]) -> None:
    tiny_case = tiny(case["family"], case["images"])
    model, inputs = tiny_case.model, tiny_case.inputs
    # models that cannot be replayed fall back to plain batches
    engine = Engine(model, tiny_case.tokenizer, verify=False, mode="batch" if case["way"] == "batch" else "auto")
    condition = condition_of(case)
    heads = some_heads(engine, seed=sum(map(ord, name_of(case))))
    width, height = tiny_case.sizes[-1]
    box = {"box": Region(((0.0, 0.0, width / 2, float(height)),), len(tiny_case.sizes) - 1)}
    layout = engine.layout(inputs, tiny_case.sizes)
    pad = 3 if case["padding"] == "left" else 0
    padded = left_padded(tiny_case, pad)
    spec = spec_of(condition, heads, tiny_case, set(layout.region_tokens(box["box"]).tolist()), pad)
    with float64_throughout(), torch.no_grad():
        oracle = run_oracle(model, padded, [spec]).logits[0].log_softmax(-1)
        clean = run_oracle(model, padded, [None]).logits[0].log_softmax(-1)
        if case["way"] == "context":
            one = HeadSet("some", ModelRef("tiny"), engine.geometry, heads)
            with engine.generating(one, condition, regions=box, image_sizes=tiny_case.sizes):
                found = model(**padded, use_cache=False).logits[0, -1].log_softmax(-1)
        else:
            found = engine.logprobs_under(inputs, heads, resolve(condition, layout, box))
    error, effect = float((found - oracle).abs().max()), float((oracle - clean).abs().max())
    assert error < TOLERANCE, f"{name_of(case)}: error {error:.2g}, effect {effect:.2g}"
    assert effect > SMALLEST_EFFECT, f"{name_of(case)}: effect {effect:.2g}, the case shows nothing"


@pytest.mark.parametrize("case", PAIRWISE, ids=name_of)
def test_engine_equals_oracle(case: dict[str, str]) -> None:
    check(case)


@pytest.mark.exact
@pytest.mark.parametrize("family", BUILDERS)
def test_engine_equals_oracle_everywhere(family: str) -> None:
    """The full product of one family; every case that fails is named."""
    failures = []
    for case in product_of({**FACTORS, "family": (family,)}):
        if valid(case):
            try:
                check(case)
            except AssertionError as error:
                failures.append(str(error))
    assert not failures, "\n".join(failures)
