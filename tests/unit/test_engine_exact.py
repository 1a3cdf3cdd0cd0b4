"""The engine against the float64 oracle, over families, operations, rows, ways of running, images and padding."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from oracle import Spec, float64_throughout, run_oracle
from tiny_models import BUILDERS, Case, build

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


def covering_array(factors: dict[str, tuple[str, ...]], valid: Any) -> list[dict[str, str]]:
    """Cases in which every valid pair of factor values occurs (greedy, in a fixed order)."""
    names = list(factors)
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(*factors.values())]
    every = [case for case in every if valid(case)]

    def pairs(case: dict[str, str]) -> set[tuple[tuple[str, str], tuple[str, str]]]:
        return set(itertools.combinations(case.items(), 2))

    missing = set().union(*(pairs(case) for case in every))
    chosen: list[dict[str, str]] = []
    step = 7919  # a walk through the product that does not follow its order
    order = [every[(i * step) % len(every)] for i in range(len(every))]
    while missing:
        best = max(order[:: max(1, len(order) // 1500)], key=lambda case: len(pairs(case) & missing))
        if not pairs(best) & missing:
            best = max(order, key=lambda case: len(pairs(case) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def valid(case: dict[str, str]) -> bool:
    """Leave out what cannot act: no prefix before a leading image, no padding in the engine (one prompt, unpadded)."""
    if case["padding"] == "left" and case["way"] != "context":
        return False
    if case["op"] == "mask region" and case["rows"] == "prefix+tail" and case["family"] == "paligemma":
        return True
    return not (case["op"] == "mask keep_self" and case["rows"] in ("last", "question", "question+last", "prefix+tail"))


PAIRWISE = covering_array(FACTORS, valid)
EVERY = [c for c in (dict(zip(FACTORS, v, strict=True)) for v in itertools.product(*FACTORS.values())) if valid(c)]


def name_of(case: dict[str, str]) -> str:
    return "-".join(case.values()).replace(" ", "_")


_CASES: dict[tuple[str, str], Case] = {}


def tiny(family: str, images: str) -> Case:
    if (family, images) not in _CASES:
        _CASES[family, images] = build(family, int(images), seed=3, dtype=torch.float64)
    return _CASES[family, images]


def by_hand(case: Case) -> dict[str, set[int]]:
    """Row groups and key sets from the token ids of the tiny prompts, without the package's layouts."""
    ids = case.inputs["input_ids"][0].tolist()
    image = {i for i, token in enumerate(ids) if token == 100}
    last = len(ids) - 1
    first, after = min(image), max(image) + 1
    tail = last if case.name == "paligemma" else last - 2
    turn = 0 if case.name == "paligemma" else 3
    groups = {
        "all": set(range(len(ids))),
        "prefix": set(range(first)),
        "image": set(range(first, after)),
        "question": set(range(after, tail)),
        "tail": set(range(tail, last + 1)),
        "last": {last},
        "image keys": image,
        "text keys": set(range(turn, tail)) - image,
    }
    return groups


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
    way = "auto" if case["way"] == "context" else case["way"]
    model, inputs = tiny_case.model, tiny_case.inputs
    mode: Any = "auto" if way == "replay" else way
    engine = Engine(model, tiny_case.tokenizer, verify=False, mode=mode)
    condition = condition_of(case)
    heads = some_heads(engine, seed=sum(map(ord, name_of(case))))
    box = {"box": Region(((0.0, 0.0, tiny_case.sizes[-1][0] / 2, tiny_case.sizes[-1][1]),), len(tiny_case.sizes) - 1)}
    layout = engine.layout(inputs, tiny_case.sizes)
    region_keys = set(layout.region_tokens(box["box"]).tolist())
    pad = 3 if case["padding"] == "left" else 0
    padded = left_padded(tiny_case, pad)
    spec = spec_of(condition, heads, tiny_case, region_keys, pad)
    if condition.op != "ablate" and not any(
        row >= min(spec.keys) or tiny_case.name in ("paligemma", "gemma3", "gemma4") for row in spec.rows
    ):
        pytest.fail(f"{name_of(case)}: the case cannot act")
    with float64_throughout(), torch.no_grad():
        oracle = run_oracle(model, padded, [spec]).logits[0]
        clean = run_oracle(model, padded, [None]).logits[0]
        if case["way"] == "context":
            one = HeadSet("some", ModelRef("tiny"), engine.geometry, heads)
            with engine.generating(one, condition, regions=box, image_sizes=tiny_case.sizes):
                found = model(**padded, use_cache=False).logits[0, -1].double()
            found, oracle, clean = (x.log_softmax(-1) for x in (found, oracle, clean))
        else:
            action = resolve(condition, layout, box)
            found = engine.logprobs_under(inputs, heads, action)
            oracle, clean = oracle.log_softmax(-1), clean.log_softmax(-1)
    error, effect = float((found - oracle).abs().max()), float((oracle - clean).abs().max())
    assert error < TOLERANCE, f"{name_of(case)}: error {error:.2g}, effect {effect:.2g}"
    assert effect > SMALLEST_EFFECT, f"{name_of(case)}: effect {effect:.2g}, the case shows nothing"


@pytest.mark.parametrize("case", PAIRWISE, ids=name_of)
def test_engine_equals_oracle(case: dict[str, str]) -> None:
    check(case)


@pytest.mark.exact
@pytest.mark.parametrize("case", EVERY, ids=name_of)
def test_engine_equals_oracle_everywhere(case: dict[str, str]) -> None:
    check(case)
