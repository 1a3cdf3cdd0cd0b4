"""A model on another device than the CPU: nothing of ours stays behind, and the numbers are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from second_device import DEVICE, Pretend, moved, second_device
from tiny_models import BUILDERS, Case, build

from harness_heads import Mask, intervene, read
from harness_heads.conditions import Condition
from harness_heads.discovery.corpora.digits import Digits
from harness_heads.discovery.design import Options
from harness_heads.discovery.loading import wrap
from harness_heads.discovery.runner import Job, run_pass
from harness_heads.engine import Answers, Engine
from harness_heads.heads import Head, HeadSet, ModelRef, empty_set
from harness_heads.regions import Region
from harness_heads.tiny.architecture import build_model
from harness_heads.tiny.processor import build_processor

MODEL = ModelRef("tiny")
BOX = {"box": Region(((0.0, 0.0, 8.0, 8.0),))}
CONDITIONS = (
    Condition("mask", "image", ("all",)),
    Condition("mask", "box", ("question",)),
    Condition("mask", "image", ("all",), keep_self=True),
    Condition("steer", "box", ("question",), "hard"),
    Condition("steer", "box", ("last",), 1.5),
    Condition("ablate", "", ("last",)),
    Condition("ablate", "", ("all",), ablation="uniform"),
)


def there(case: Case) -> Case:
    """The case on the second device."""
    moved(case.model)
    case.inputs = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in case.inputs.items()}
    return case


def sets_of(engine: Engine) -> list[HeadSet]:
    geometry = engine.geometry
    some = tuple(Head(layer, head) for layer, count in enumerate(geometry.heads) for head in range(0, count, 2))
    return [
        empty_set(MODEL, geometry),
        HeadSet("many", MODEL, geometry, some),
        HeadSet("one", MODEL, geometry, some[-1:]),
    ]


def ask(case: Case, **options: Any) -> Answers:
    engine = Engine(case.model, case.tokenizer, **options)
    return engine.answer(
        case.inputs,
        sets_of(engine),
        keys=["empty", "many", "one"],
        conditions=CONDITIONS,
        options=["A", "B"],
        regions=BOX,
        image_sizes=case.sizes,
    )


def test_mixing_devices_fails_as_beside_a_gpu() -> None:
    with second_device() as device:
        x = torch.arange(6, device=device).float()
        x.view(2, 3)[0, 1] = 9
        assert x.device == device and x.cpu().tolist() == [0, 9, 2, 3, 4, 5]
        assert x[torch.tensor([1, 2])].tolist() == [9, 2] and (x + torch.tensor(1.0)).device == device
        mixes = (
            lambda: x + torch.zeros(6),
            lambda: torch.zeros(6)[x.long()],
            lambda: x.index_fill(0, torch.tensor([0]), 1.0),
        )
        for mix in mixes:
            with pytest.raises(RuntimeError, match="one device"):
                mix()
        with pytest.raises(TypeError, match="cpu"):
            x.numpy()


@pytest.mark.parametrize("name", BUILDERS)
def test_every_model_type_answers_as_on_the_cpu(name: str) -> None:
    """In float32, where other kernels round otherwise; the self-check, which is slow here, runs on some."""
    expected = ask(build(name), verify=False)
    case = build(name)
    with second_device():
        found = ask(there(case), verify=name in ("qwen3_vl", "gemma3", "internvl"))
    assert found.numerics["mode"] == expected.numerics["mode"]
    for condition, by_set in expected.logprobs.items():
        for key, by_option in by_set.items():
            for option, value in by_option.items():
                assert found.logprobs[condition][key][option] == pytest.approx(value, abs=1e-4)
            for when, mass in expected.dose[condition].get(key, {}).items():
                assert found.dose[condition][key][when] == pytest.approx(mass, abs=1e-5)


@pytest.mark.parametrize("condition", [CONDITIONS[0], Condition("steer", "image", beta=2.0), CONDITIONS[-1]])
def test_generation_as_on_the_cpu(condition: Condition) -> None:
    def tokens(case: Case) -> list[list[int]]:
        engine = Engine(case.model, case.tokenizer, verify=False)
        with engine.generating(sets_of(engine)[1], condition):
            made = case.model.generate(**case.inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False)
        return made.tolist()

    expected = tokens(build("qwen3_vl"))
    case = build("qwen3_vl")
    with second_device():
        assert tokens(there(case)) == expected


def test_library_as_on_the_cpu() -> None:
    def both(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
        masses = read(case.model, case.inputs, rows=("last",), regions=BOX, image_sizes=case.sizes)
        with torch.no_grad(), intervene(case.model, Mask([(1, 0), (2, 1)], keys="image")):
            return masses, case.model(**case.inputs).logits[0, -1]

    expected = both(build("llava"))
    case = build("llava")
    with second_device():
        found = [value.cpu() for value in both(there(case))]
    assert not any(isinstance(value, Pretend) for value in found)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=0)


@pytest.mark.parametrize("query", ["ord", "ref"])
def test_discovery_as_on_the_cpu(query: str) -> None:
    def values(move: Callable[[Any], Any]) -> Any:
        processor = build_processor()
        model = build_model(processor.tokenizer, 3, 4).eval()
        loaded = wrap(move(model), processor, ModelRef("tiny-digits"))
        job = Job(Digits(0), query, ("last", "qsp", "out"), Options(), 2, 0, entropy=("last",), calibrated=("last",))
        return run_pass(loaded, job, progress=False).measured.values

    expected = values(lambda model: model)
    with second_device():
        found = values(moved)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
