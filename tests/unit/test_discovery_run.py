"""Whole discovery runs on a small untrained model: the chain from strips to head sets, resuming, errors."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

from harness_heads.cli import attention as attention_command
from harness_heads.cli import discover as discover_command
from harness_heads.cli import overlap as overlap_command
from harness_heads.controls import draw_controls, facts_of
from harness_heads.discovery import discover as module
from harness_heads.discovery.corpora.digits import Digits
from harness_heads.discovery.design import Options, parse_setting
from harness_heads.discovery.discover import Request, check_request, discover_methods, discover_settings
from harness_heads.discovery.loading import Loaded, load, wrap
from harness_heads.discovery.methods import ALL, METHODS, VARIANTS, method
from harness_heads.discovery.output import read
from harness_heads.discovery.overlap import split_half
from harness_heads.discovery.prompts import SYSTEM
from harness_heads.discovery.runner import Job, run_pass
from harness_heads.discovery.samples import CorruptImageError, Sample
from harness_heads.discovery.tables import details, table_1, table_2
from harness_heads.errors import HarnessHeadsError
from harness_heads.head_sets import resolve
from harness_heads.heads import Head, ModelRef
from harness_heads.protocol.discoveries import overlaps
from harness_heads.protocol.folders import look
from harness_heads.tiny import wording
from harness_heads.tiny.architecture import build_model
from harness_heads.tiny.processor import build_processor


@functools.cache
def untrained() -> Loaded:
    processor = build_processor()
    model = build_model(processor.tokenizer, 3, 4).eval()
    with torch.no_grad():  # initial attention is nearly flat; make it peaked
        for layer in model.model.language_model.layers:
            layer.self_attn.q_proj.weight.mul_(4)
            layer.self_attn.k_proj.weight.mul_(4)
    return wrap(model, processor, ModelRef("tiny-digits"))


@functools.cache
def folder() -> Path:
    import tempfile

    path = Path(tempfile.mkdtemp())
    untrained().model.save_pretrained(path)
    untrained().processor.save_pretrained(path)
    return path


def request(path: Path, n: int = 2, **options: Any) -> Request:
    return Request(path, n, progress=False, **options)


def job(
    corpus: Any = None, query: str = "ref", sources: tuple[str, ...] = ("last", "qsp"), n: int = 2, **more: Any
) -> Job:
    return Job(Digits(0) if corpus is None else corpus, query, sources, more.pop("options", Options()), n, 0, **more)


def eager_scores(sample: Sample, query_rows: str) -> np.ndarray:
    """One strip's scores straight from transformers' eager attention maps, without the package's reading."""
    loaded = untrained()
    model: Any = loaded.model
    total = np.zeros((6, 16))
    decoder = model.get_decoder()
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation_internal = "eager"
    try:
        for panel, ask in enumerate(sample.asks):
            messages = [
                {"role": "system", "content": [{"type": "text", "text": SYSTEM}]},
                {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": ask.text}]},
            ]
            text = loaded.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            inputs = loaded.processor(text=[text], images=[sample.images[0]], do_resize=False, return_tensors="pt")
            with torch.no_grad():
                maps = model(**inputs, output_attentions=True, use_cache=False).attentions
            ids = inputs["input_ids"][0].tolist()
            first = ids.index(loaded.processor.tokenizer.convert_tokens_to_ids("<|image_pad|>"))
            # a strip is 2 rows of 12 tokens; a panel is 2 columns of both
            keys = [first + r * 12 + c for r in range(2) for c in (2 * panel, 2 * panel + 1)]
            words = [loaded.processor.tokenizer.decode([i]) for i in ids]
            rows = [len(ids) - 1]
            if query_rows == "qsp":
                start = max(i for i, w in enumerate(words) if w == " the")
                rows = [start, start + 1, start + 2]
            for layer, dense in enumerate(maps):
                total[layer] += dense[0][:, rows][:, :, keys].sum(-1).mean(-1).numpy() / 6
    finally:
        decoder.config._attn_implementation_internal = before
    return total


def test_per_sample_scores_are_the_mean_over_asks_of_region_sums(tmp_path: Path) -> None:
    found = discover_settings(
        untrained(), [parse_setting("dg-ref-qsp"), parse_setting("dg-ref-last")], request(tmp_path, 2)
    )
    strip = Digits(0).sample(int(found[0].ids[0].rsplit("-", 1)[1]), "ref")
    for finding, rows in zip(found, ("qsp", "last"), strict=True):
        np.testing.assert_allclose(finding.per_sample[0], eager_scores(strip, rows), rtol=2e-5, atol=1e-7)
        np.testing.assert_allclose(finding.scores, finding.per_sample.mean(0))


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    found = discover_settings(untrained(), [parse_setting("dg-ref-qsp")], request(tmp_path, 3, k=5))[0]
    stored = read(tmp_path / "dg-ref-qsp")
    assert stored.head_set == found.head_set and stored.ids == found.ids
    np.testing.assert_allclose(stored.per_sample, found.per_sample, rtol=1e-6)
    with safe_open(str(tmp_path / "dg-ref-qsp" / "scores.safetensors"), framework="numpy") as file:
        assert file.get_tensor("scores").shape == (3, 6, 16)
        assert str(file.get_tensor("scores").dtype) == "float32"
    assert resolve(str(tmp_path / "dg-ref-qsp")).identity == found.head_set.identity
    assert found.head_set.name == "tiny-digits/dg-ref-qsp" and len(found.head_set) == 5
    picture = (tmp_path / "dg-ref-qsp" / "overview.svg").read_text()
    assert picture.count("#d62728") == 5 + 1  # five framed cells and the cut
    text = (tmp_path / "dg-ref-qsp" / "overview.md").read_text()
    for head in found.head_set:
        assert f"| {head}" in text
    note = found.head_set.provenance
    assert note["options"]["out_row"] == "consume" and note["corpus"]["split"] == "discover"
    assert note["read"]["weights"] and note["samples"] == 3


def test_a_discovered_set_brings_the_facts_of_its_controls(tmp_path: Path) -> None:
    found = discover_settings(untrained(), [parse_setting("dg-ref-qsp")], request(tmp_path, 2))[0]
    facts = facts_of(found.head_set)
    assert facts is not None
    head = found.head_set.heads[0]
    assert facts.scores[head] == pytest.approx(found.scores[head.layer, head.head], rel=1e-5)
    assert 0 < facts.image_mass[head] <= 1
    total = facts.image_mass[head] + facts.sink_mass[head] + facts.text_mass[head]
    assert total == pytest.approx(1.0, abs=1e-5)
    assert draw_controls(found.head_set, "attention", 2, 0)[0].provenance["image_mass"]["set"] > 0
    assert len(draw_controls(found.head_set, "damage", 1, 0)) == 6


def test_three_sources_come_from_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(module, "run_pass", lambda *a, **k: calls.append(a[1].query) or run_pass(*a, **k))
    settings = [parse_setting(f"dg-{q}-{s}") for q in ("ord", "ref") for s in ("last", "qsp", "out")]
    options = Options(max_new_tokens=3)
    found = discover_settings(untrained(), settings, request(tmp_path, 1, options=options))
    assert calls == ["ord", "ref"]
    assert [f.name for f in found] == [s.name for s in settings]
    assert not np.allclose(found[0].scores, found[1].scores)


def test_batching_and_padding_change_nothing() -> None:
    loaded = untrained()
    options = Options(max_new_tokens=4)
    sources = ("last", "qsp", "out", "in")
    runs = [
        run_pass(loaded, job(sources=sources, n=2, options=options), batch_size=b, progress=False).measured.values
        for b in (1, 4, 12)
    ]
    for other in runs[1:]:
        np.testing.assert_allclose(other[:, :, [0, 1, 4, 5, 6]], runs[0][:, :, [0, 1, 4, 5, 6]], rtol=1e-4, atol=1e-6)


class Interrupted(Digits):
    """Fails at the third sample that is asked for."""

    asked = 0

    def sample(self, index: int, query: str) -> Sample:
        self.asked += 1
        if self.asked == 3:
            raise KeyboardInterrupt
        return super().sample(index, query)


def test_a_killed_pass_goes_on_and_ends_with_the_same_numbers(tmp_path: Path) -> None:
    whole = run_pass(untrained(), job(n=4), progress=False)
    journal = tmp_path / "journal.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_pass(untrained(), job(Interrupted(0), n=4), journal=journal, progress=False)
    assert len(journal.read_text().splitlines()) == 3
    with journal.open("a") as file:
        file.write('{"id": "17", "clus')  # torn by the kill
    counting = Interrupted(0)
    counting.asked = 10
    resumed = run_pass(untrained(), job(counting, n=4), journal=journal, progress=False)
    assert counting.asked == 12
    assert resumed.ids == whole.ids
    np.testing.assert_array_equal(resumed.measured.values, whole.measured.values)
    more = run_pass(untrained(), job(n=5), journal=journal, progress=False)
    np.testing.assert_array_equal(more.measured.values[:4], whole.measured.values)


def test_a_journal_of_another_run_is_not_mixed_in(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    run_pass(untrained(), job(n=1), journal=journal, progress=False)
    with pytest.raises(HarnessHeadsError, match="belongs to another run"):
        run_pass(untrained(), job(n=1, options=Options(region_rule="overlap")), journal=journal, progress=False)
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], "broken", *lines[1:]]) + "\n")
    with pytest.raises(HarnessHeadsError, match="line 2 is damaged"):
        run_pass(untrained(), job(n=1), journal=journal, progress=False)


class Broken(Digits):
    def sample(self, index: int, query: str) -> Sample:
        if index % 2:
            raise CorruptImageError(f"strip {index}: the image cannot be decoded (broken)")
        return super().sample(index, query)


def test_corrupt_images_stop_the_run_or_are_left_out_where_asked() -> None:
    with pytest.raises(CorruptImageError, match=r"strip .*leave such samples out with --skip-corrupt"):
        run_pass(untrained(), job(Broken(0), n=8), progress=False)
    result = run_pass(untrained(), job(Broken(0), n=8), skip_corrupt=True, progress=False)
    assert 0 < len(result.skipped) < 8
    assert len(result.ids) == 8 - len(result.skipped)
    assert all("cannot be decoded" in reason for reason in result.skipped.values())

    class AllBroken(Digits):
        def sample(self, index: int, query: str) -> Sample:
            raise CorruptImageError("strip: gone")

    with pytest.raises(HarnessHeadsError, match="no sample could be read"):
        run_pass(untrained(), job(AllBroken(0), n=2), skip_corrupt=True, progress=False)


class Empty(Digits):
    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        (lambda: job(Empty(0)), {}, "it is empty"),
        (lambda: job(Digits(0, size=3), n=4), {}, "n=4 samples were asked for, it holds 3"),
        (lambda: job(n=1), {"batch_size": 0}, "batch_size=0"),
    ],
)
def test_runs_that_cannot_start(made: Any, options: Mapping[str, Any], words: str) -> None:
    with pytest.raises(HarnessHeadsError, match=words):
        run_pass(untrained(), made(), progress=False, **options)


def test_k_beyond_the_heads_is_found_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match="k=97: the model has 96 softmax"):
        check_request(untrained(), request(tmp_path, 1, k=97))
    with pytest.raises(HarnessHeadsError, match="k=17: the smallest layer has 16"):
        check_request(untrained(), request(tmp_path, 1, k=17, per_layer=True))


def test_top_heads_of_every_layer(tmp_path: Path) -> None:
    found = discover_settings(untrained(), [parse_setting("dg-ref-qsp")], request(tmp_path, 1, per_layer=True))[0]
    assert found.head_set.per_layer == (3,) * 6
    assert found.head_set.provenance["selection"] == "top k per layer"


def test_all_methods_run_on_one_box_corpus(tmp_path: Path) -> None:
    options = Options(max_new_tokens=4)
    found = discover_methods(untrained(), list(ALL.values()), "digits", request(tmp_path, 2, options=options))
    assert {f.name for f in found} == {f"{name}/digits" for name in ALL}
    by_name = {f.name.split("/")[0]: f for f in found}
    np.testing.assert_allclose(by_name["vrh"].scores, by_name["out-sum-avg"].scores)
    np.testing.assert_allclose(by_name["gaze"].scores, by_name["last-sum-avg"].scores)
    np.testing.assert_allclose(by_name["first-sum-avg"].scores, by_name["last-sum-avg"].scores)
    assert not np.allclose(by_name["vera"].scores, by_name["gaze"].scores)
    freq = by_name["out-sum-freq"].per_sample
    k = len(by_name["out-sum-freq"].head_set)
    tops = [set(np.argsort(-s.ravel(), kind="stable")[:k]) for s in freq]
    expected = np.array([sum(i in t for t in tops) / 2 for i in range(96)]).reshape(6, 16)
    np.testing.assert_allclose(by_name["out-sum-freq"].scores, expected)
    assert set(np.unique(by_name["localization"].scores)) <= {0.0, 0.5, 1.0}
    assert by_name["qrhead"].scores.min() < 0 < by_name["qrhead"].scores.max()
    assert by_name["retrieval"].head_set.provenance["options"]["out_row"] == "predict"
    strips = discover_methods(untrained(), [method("gaze")], "dg-ord", request(tmp_path, 2))[0]
    setting = discover_settings(untrained(), [parse_setting("dg-ord-last")], request(tmp_path, 2))[0]
    np.testing.assert_allclose(strips.scores, setting.scores)  # the native method and its setting
    assert strips.head_set.name == "tiny-digits/gaze/dg-ord" != setting.head_set.name
    assert by_name["ocr"].head_set.provenance["options"]["region_rule"] == "overlap"


def test_forced_answers_are_the_gold_boxes(tmp_path: Path) -> None:
    options = Options(output="forced")
    found = discover_methods(untrained(), [method("vrh")], "digits", request(tmp_path, 1, options=options))[0]
    assert found.head_set.provenance["answers_without_box"] == 0
    settings = discover_settings(untrained(), [parse_setting("dg-ref-out")], request(tmp_path, 1, options=options))
    assert settings[0].head_set.provenance["options"]["output"] == "forced"


def test_region_norm_divides_by_the_regions_tokens(tmp_path: Path) -> None:
    setting = [parse_setting("dg-ref-qsp")]
    plain = discover_settings(untrained(), setting, request(tmp_path / "a", 1))[0]
    normed = discover_settings(untrained(), setting, request(tmp_path / "b", 1, options=Options(region_norm="mean")))[0]
    np.testing.assert_allclose(normed.scores, plain.scores / 4, rtol=1e-6)
    assert normed.head_set.provenance["measure"] == "mean"


def test_papers_tables_render_from_the_registry() -> None:
    first, second = table_1(), table_2()
    assert [c.strip() for c in first.splitlines()[2].strip("|").split("|")] == [
        "Input Source", "Text", "Text", "Visual document", "Visual document", "General image", "General image",
    ]  # fmt: skip
    assert [c.strip() for c in first.splitlines()[3].strip("|").split("|")] == [
        "Causality",
        "✓",
        "✓",
        "✓",
        "✓",
        "✗",
        "✓",
    ]
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in second.splitlines()]
    assert rows[0][1:] == ["Retrieval Heads", "QRHead", "OCR Heads", "VERA", "Loc. Heads"]
    assert rows[2][1:] == ["Q_out", "Q_in", "Q_out", "Q_out", "Q_in"]
    assert rows[3][1:] == ["Φ_argmax", "Φ_sum", "Φ_argmax", "Φ_sum", "N/A"]
    assert rows[4][1:] == ["Ω_avg", "Ω_avg", "Ω_avg", "Ω_avg", "Ω_freq"]
    assert all(name in details() for name in METHODS)


def test_eight_variants() -> None:
    assert len(VARIANTS) == 8
    with pytest.raises(HarnessHeadsError, match="did you mean 'vrh'"):
        method("vrhh")


def test_equal_runs_are_equal_files_and_frequencies_read_back(tmp_path: Path) -> None:
    """A set made by frequency is compared by frequency, not by the mean of what was measured."""
    chosen = [method("in-sum-freq"), method("in-sum-avg")]
    found = discover_methods(untrained(), chosen, "digits", request(tmp_path / "a", 4))
    discover_methods(untrained(), chosen, "digits", request(tmp_path / "b", 4))
    for file in ("scores.safetensors", "head_set.json", "overview.svg", "overview.md"):
        where = Path("in-sum-freq-digits") / file
        assert (tmp_path / "a" / where).read_bytes() == (tmp_path / "b" / where).read_bytes(), file
    frequency, mean = (read(tmp_path / "a" / f"{m.name}-digits").scored() for m in chosen)
    np.testing.assert_array_equal(frequency.scores, mean.scores)
    np.testing.assert_allclose(frequency.aggregate(frequency.scores), found[0].scores)
    np.testing.assert_allclose(mean.aggregate(mean.scores), found[1].scores, rtol=1e-6)
    assert float(np.abs(found[0].scores - found[1].scores).max()) > 0.1
    again = split_half(frequency, frequency, len(found[0].head_set))
    assert found[0].stability is not None and again.own == found[0].stability.own


def command(module_: Any, *words: str) -> int:
    parser = argparse.ArgumentParser()
    module_.add_parser(parser.add_subparsers())
    args = parser.parse_args(list(words))
    return int(args.run(args))


def test_the_commands_from_discovery_to_overlap_and_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["discover", "--model", str(folder()), "--n", "3", "--quiet", "--output", str(tmp_path)]
    assert command(discover_command, *base, "--setting", "dg-ref-qsp", "--setting", "dg-ord-last") == 0
    assert "8 heads, halves share" in capsys.readouterr().out
    sets = [str(tmp_path / "dg-ref-qsp"), str(tmp_path / "dg-ord-last")]
    out = tmp_path / "numbers.json"
    assert command(overlap_command, "overlap", *sets, "--k", "4+8", "--splits", "5", "--json", str(out)) == 0
    numbers = json.loads(out.read_text())
    assert numbers["shared"][0][0] == 8
    assert "ceiling" in capsys.readouterr().out
    picture = tmp_path / "maps.svg"
    strip = tmp_path / "strip.png"
    Digits(0).sample(0, "ref").images[0].save(strip)
    words = ["--image", str(strip), "--text", wording.referring(3), "--box", "0,0,64,64", "--head-set", sets[0]]
    model = ["attention", "--model", str(folder()), "--output", str(picture)]
    assert command(attention_command, *model, *words, "--intervene", "ablate", "--rows", "question") == 0
    drawn = picture.read_text()
    assert drawn.count("<image") == 4 and "stroke-dasharray" in drawn
    assert "from the question's rows" in drawn.replace("&#x27;", "'")
    said = capsys.readouterr().out
    assert "the set: mean attention on the referent" in said
    assert float(next(x for x in said.splitlines() if x.startswith("the set")).rsplit(" ", 1)[1]) == 0.0
    # a mean over heads: of all 96, the set's 8 and the other 88 are the parts
    every, own, rest = (float(x.split("referent ")[1].split(",")[0]) for x in said.splitlines() if ": mean " in x)
    assert every == pytest.approx((8 * own + 88 * rest) / 96, abs=2e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["discover"], "give --model"),
        (["discover", "--model", "x"], "give --setting"),
        (["discover", "--model", "x", "--setting", "dg-ref-qs"], "did you mean 'dg-ref-qsp'"),
        (["discover", "--model", "/no/such/folder", "--setting", "dg-ref-qsp"], "cannot be loaded"),
        (["discover", "--model", "x", "--method", "vr"], "did you mean 'vrh'"),
    ],
)
def test_bad_commands(words: list[str], message: str) -> None:
    with pytest.raises(HarnessHeadsError, match=message):
        command(discover_command, *words)


def test_sets_of_every_layers_best_have_no_flat_ceiling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    discover_settings(untrained(), [parse_setting("dg-ref-qsp")], request(tmp_path, 2, k=2, per_layer=True))
    assert command(overlap_command, "overlap", str(tmp_path / "dg-ref-qsp")) == 0
    assert "dg-ref-qsp holds the top heads of every layer" in capsys.readouterr().out


def test_sizes_are_joined_by_plus(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(overlap_command, "overlap", "a", "--k", "4,8")
    assert "'4,8': join sizes by +" in capsys.readouterr().err


def test_scores_of_another_version_are_named(tmp_path: Path) -> None:
    save_file({n: np.zeros((1, 1), np.float32) for n in ("scores", "mean")}, tmp_path / "scores.safetensors", {"a": ""})
    with pytest.raises(HarnessHeadsError, match="another version; run the discovery again"):
        read(tmp_path)


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(HarnessHeadsError, match="dtype 'float13' is unknown"):
        load(str(folder()), dtype="float13")


def test_folders_without_scores_are_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessHeadsError, match=r"no scores.safetensors there"):
        read(tmp_path)
    (tmp_path / "scores.safetensors").write_bytes(b"12345678")
    with pytest.raises(HarnessHeadsError, match="it cannot be read"):
        read(tmp_path)


def test_maps_refuse_what_they_cannot_show(tmp_path: Path) -> None:
    from harness_heads.conditions import Condition
    from harness_heads.discovery.maps import read_maps
    from harness_heads.heads import HeadSet

    head_set = HeadSet("s", ModelRef("tiny-digits"), untrained().geometry, (Head(0, 0),))
    image = Image.new("RGB", (64, 64))
    with pytest.raises(HarnessHeadsError, match="rows 'anywhere' are unknown"):
        read_maps(untrained(), head_set, image, "hi", rows="anywhere")
    with pytest.raises(HarnessHeadsError, match="steering only moves"):
        read_maps(untrained(), head_set, image, "hi", condition=Condition("steer", "image", beta="hard"))


def test_a_report_reads_what_discover_wrote(tmp_path: Path) -> None:
    """Two settings by the runner and its own writer, named by the folder above them."""
    loaded, asked = untrained(), request(tmp_path, n=4)
    discover_settings(loaded, [parse_setting("dg-ref-qsp"), parse_setting("dg-ref-last")], asked)
    contents = look(tmp_path)
    assert [folder.name for folder in contents.discoveries] == ["dg-ref-last", "dg-ref-qsp"]
    (pair,) = overlaps([read(folder) for folder in contents.discoveries], 20)
    one, two = (read(folder).scored() for folder in contents.discoveries)
    split = split_half(one, two, len(read(contents.discoveries[0]).head_set), splits=20)
    assert (pair["overlap"], pair["self_a"], pair["self_b"]) == (split.cross, *split.own)
    assert pair["samples"] == 4
