"""Arguments of a run: what lmms-eval would fall over, or take without a word, is one error that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_heads.cli.run_arguments import (
    _data_environment,
    check_include_path,
    check_model_args,
    parse,
    pinned,
    prepare,
)
from harness_heads.errors import HarnessHeadsError
from harness_heads.models.hosts import host_of
from harness_heads.models.loading import host_arguments

HOST = host_of("qwen3_vl")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pretrained=x,controls", "'controls' has no value; write controls=VALUE"),
        ("head_set=", "head_set= is empty"),
        ("pretrained=,controls=2", "pretrained= is empty"),
        ("=2", "names no argument"),
        ("controls=2,pretrained=x, controls=3", "controls is given twice"),
        ("head_set=a,b", r"'b' has no value; .* join lists with \+"),
    ],
)
def test_model_args_that_are_none(text: str, says: str) -> None:
    with pytest.raises(HarnessHeadsError, match=f"^model_args: .*{says}"):
        check_model_args(text)


def test_all_faults_of_model_args_are_told_at_once() -> None:
    with pytest.raises(HarnessHeadsError) as caught:
        check_model_args("controls,head_set=,beta=1,beta=2")
    assert all(word in str(caught.value) for word in ("'controls' has no value", "head_set= is empty", "beta is given"))


@pytest.mark.parametrize("text", ["", "  ", "pretrained=x,head_set=a+b", 'mm={"a":1,"b":[2,3]},controls=1'])
def test_sound_model_args_pass(text: str) -> None:
    check_model_args(text)


def test_an_empty_element_of_a_list_of_sets_is_no_folder() -> None:
    with pytest.raises(HarnessHeadsError, match="head set '' is empty"):
        pinned("head_set=tiny-digits/dg-ref-qsp+")


@pytest.mark.parametrize(
    ("content", "says"),
    [("- a\n- b\n", "no mapping of keys"), ("", "no mapping of keys"), ("a: [", "expected"), ("a: 1\n---\nb: 2\n", "")],
)
def test_a_yaml_on_which_lmms_eval_would_fail_for_every_task(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "list.yaml").write_text(content)
    with pytest.raises(HarnessHeadsError, match=rf"--include_path .*list\.yaml is no task \(.*{says}"):
        check_include_path(tmp_path)


def test_include_paths_that_pass_and_that_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("task: t\nclass: !function a.b\nx: !!python/tuple [1]\n")
    check_include_path(tmp_path)
    with pytest.raises(HarnessHeadsError, match="no such folder"):
        check_include_path(tmp_path / "absent")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model_args", "pretrained=tiny-digits,controls"), "'controls' has no value"),
        (("--include_path", "odd"), "odd/list.yaml is no task"),
        (("--output_path", "out"), "run file out/run.json is not JSON"),
    ],
)
def test_a_run_is_refused_before_anything_is_loaded(
    words: tuple[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_HEADS_RUN", "")
    for path, content in ((Path("odd/list.yaml"), "- a"), (Path("out/run.json"), '{"schema": 1')):
        path.parent.mkdir()
        path.write_text(content)
    namespace, data = parse(["--model", "masked_qwen3vl", "--tasks", "ncs_digits", *words])
    with pytest.raises(HarnessHeadsError, match=says):
        prepare(namespace, data)
    assert Path("out/run.json").read_text() == '{"schema": 1'


def test_one_task_has_one_local_copy(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="t is given twice"):
        _data_environment([f"t={tmp_path}", f"t={tmp_path}"])


@pytest.mark.parametrize("size", ["auto", "auto:4", 0, -1, 1.5, ""])
def test_batch_sizes_that_hosts_would_fail_on(size: object) -> None:
    with pytest.raises(HarnessHeadsError, match=f"batch_size={size}: this host takes a whole number >= 1"):
        host_arguments(HOST, {"pretrained": "tiny-digits", "batch_size": size})


@pytest.mark.parametrize("size", ["2", 2, 2.0])
def test_batch_sizes_as_lmms_eval_hands_them_over(size: object) -> None:
    assert host_arguments(HOST, {"pretrained": "tiny-digits", "batch_size": size})[0] == "tiny-digits"


def test_a_mistyped_embedded_model_is_known_before_any_network() -> None:
    with pytest.raises(HarnessHeadsError, match="pretrained=tiny-digit: no such model; did you mean 'tiny-digits'"):
        host_arguments(HOST, {"pretrained": "tiny-digit"})
