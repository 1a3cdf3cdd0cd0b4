"""Settings: every model_arg parses, every mistake is named, and the documented list is the real one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_heads.conditions import OPS, Op
from harness_heads.errors import HarnessHeadsError
from harness_heads.settings import ACTS_UNDER, HELP, Settings, check_op, split_model_args

HOST = ("pretrained", "device", "batch_size")


def parsed(**arguments: object) -> Settings:
    return split_model_args(arguments, HOST)[0]


def test_every_setting_is_documented_and_parsed() -> None:
    assert set(HELP) == {f.name for f in fields(Settings)}


def test_ours_and_the_hosts_are_split() -> None:
    settings, rest = split_model_args({"controls": 3, "pretrained": "x", "batch_size": 1}, HOST)
    assert settings.controls == 3
    assert rest == {"pretrained": "x", "batch_size": 1}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("head_set", "a/b+c.json", ("a/b", "c.json")),
        ("top_k", 8, (8,)),
        ("top_k", "20+40", (20, 40)),
        ("top_k", 8.0, (8,)),
        ("controls", "20", 20),
        ("control_family", "layer+any", ("layer", "any")),
        ("rows", "all+question+prefix-last", (("all",), ("question",), ("prefix", "last"))),
        ("beta", "1+3+hard", (1.0, 3.0, "hard")),
        ("beta", 3, (3.0,)),
        ("beta", "hard", ("hard",)),
        ("keep_self", True, True),
        ("keep_self", "no", False),
        ("verify", "False", False),
        ("box", "0-0-500-1000", (0.0, 0.0, 500.0, 1000.0)),
    ],
)
def test_values_as_lmms_eval_hands_them_over(name: str, value: object, expected: object) -> None:
    assert getattr(parsed(**{name: value}), name) == expected


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("controls", -1, "0 or more"),
        ("controls", 2.5, "no whole number"),
        ("controls", True, "no whole number"),
        ("top_k", 0, "1 or more"),
        ("top_k", "8+", "empty"),
        ("rows", "questions", "did you mean 'question'"),
        ("beta", "inf", "finite"),
        ("beta", "nan", "finite"),
        ("beta", "2+0.0", "0 moves no attention"),
        ("beta", "strong", "strong is neither a finite number nor the word hard"),
        ("controls", "many", "no whole number"),
        ("condition_batch", 0, "1 or more"),
        ("rows", "last-last", "names a group twice"),
        ("rows", "all-last", "mixes all with groups"),
        ("rows", "last-question+question-last", "named twice"),
        ("control_family", "layer+layer", "layer is named twice; name it once"),
        ("beta", "1+1.0", "1.0 is named twice"),
        ("top_k", "8+8", "8 is named twice"),
        ("head_set", "a+b+a", "a is named twice"),
        ("box", "a-b-c-d", "x0-y0-x1-y1"),
        ("box", "nan-0-500-500", "x0-y0-x1-y1"),
        ("control_family", "layers", "did you mean 'layer'"),
        ("phase", "prefil", "did you mean 'prefill'"),
        ("box", "0-0-500", "x0-y0-x1-y1"),
        ("box", "500-0-0-500", "x0-y0-x1-y1"),
        ("verify", "perhaps", "True or False"),
    ],
)
def test_a_bad_value_is_named(name: str, value: object, says: str) -> None:
    with pytest.raises(HarnessHeadsError) as caught:
        parsed(**{name: value})
    message = str(caught.value)
    assert f"{name}={value}" in message
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize("name", [*HELP, "pretrained"])
def test_an_empty_value_is_named_whatever_the_argument(name: str) -> None:
    with pytest.raises(HarnessHeadsError, match=f"model_args: {name}= is empty; give it a value, or leave it out"):
        parsed(**{name: ""})


@pytest.mark.parametrize("name", ["head_set", "control_family", "rows", "beta"])
def test_a_text_where_a_sequence_belongs_is_not_read_by_letters(name: str) -> None:
    text: Any = "last"
    with pytest.raises(HarnessHeadsError, match=f"{name}='last': give a sequence"):
        Settings(**{name: text})


@pytest.mark.parametrize(
    ("given", "op", "says"),
    [
        ({"beta": "1+3"}, "mask", "beta= does nothing under mask, only steer reads it"),
        ({"beta": 1}, "ablate", "beta= does nothing under ablate"),
        ({"box": "0-0-500-500"}, "mask", "box= does nothing under mask"),
        ({"numerics": "bf16_round"}, "ablate", "numerics= does nothing under ablate"),
        ({"keep_self": True}, "steer", "keep_self= does nothing under steer, only mask reads it"),
        ({"ablation": "uniform"}, "mask", "ablation= does nothing under mask, only ablate reads it"),
        (
            {"exclude_set": True, "control_family": "disjoint+attention"},
            "mask",
            r"exclude_set= does nothing to control_family=disjoint\+attention",
        ),
    ],
)
def test_what_cannot_act_is_refused(given: dict[str, object], op: Op, says: str) -> None:
    with pytest.raises(HarnessHeadsError, match=says):
        check_op(parsed(**given), op)


@pytest.mark.parametrize("op", OPS)
def test_what_can_act_passes(op: Op) -> None:
    mine = {name: {"beta": "hard", "box": "0-0-5-5", "keep_self": True}.get(name) for name in ACTS_UNDER}
    given = {name: value for name, value in mine.items() if value is not None and ACTS_UNDER[name] == op}
    check_op(parsed(**given, exclude_set=True, control_family="disjoint+layer"), op)


def test_an_unknown_argument_gets_a_suggestion() -> None:
    with pytest.raises(HarnessHeadsError, match="unknown model_arg 'headset'; did you mean 'head_set'"):
        parsed(headset="x")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(HarnessHeadsError) as caught:
        parsed(controls=-1, bogus=1, beta="x")
    assert all(word in str(caught.value) for word in ("controls=-1", "'bogus'", "beta=x"))


@given(
    st.lists(st.sampled_from(["a", "b/c", "d.json"]), min_size=1, max_size=3, unique=True),
    st.integers(0, 10_000),
    st.lists(st.one_of(st.floats(0.01, 1e4), st.just("hard")), max_size=4, unique=True),
)
def test_dict_names_every_setting(sets: list[str], controls: int, betas: list[object]) -> None:
    arguments: dict[str, object] = {"head_set": "+".join(sets), "controls": controls}
    if betas:
        arguments["beta"] = "+".join(str(beta) for beta in betas)
    value = parsed(**arguments).to_dict()
    assert set(value) == {f.name for f in fields(Settings)}
    assert value["head_set"] == sets
    assert value["controls"] == controls
    assert value["beta"] == [b if b == "hard" else float(str(b)) for b in betas]
