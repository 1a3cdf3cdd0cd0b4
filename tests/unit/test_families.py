"""Family entries: registry, geometry, row groups of tiny prompts, and which token a painted cell moves."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_models import BUILDERS, IMAGE, TURN_END, Words, build, by_hand, prompt_ids

from harness_heads import boxes
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import FAMILIES, REFUSED, family_of
from harness_heads.regions import Region

ATTENTION_OUTPUT = re.compile(r"out_proj|attn\.proj|projection_layer|self_attn\.o_proj")


def model_like(model_type: str) -> Any:
    return SimpleNamespace(config=SimpleNamespace(model_type=model_type))


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("images", [1, 2])
def test_row_groups_of_every_family(name: str, images: int) -> None:
    """The layout finds what the tiny prompt was made of; marks around Ovis tiles count as text of the image group."""
    case = build(name, images)
    family = family_of(case.model)
    layout = family.layout(case.model.config, case.inputs, case.sizes, case.tokenizer)
    hand = by_hand(case)
    assert layout.image_positions.tolist() == sorted(hand["image keys"])
    assert len(layout.images) == images
    for group in ("prefix", "image", "question", "tail", "last"):
        assert layout.rows(group).tolist() == sorted(hand[group]), group
    assert layout.text_positions.tolist() == sorted(hand["text keys"])


@pytest.mark.parametrize("name", BUILDERS)
def test_geometry(name: str) -> None:
    case = build(name)
    geometry = family_of(case.model).geometry(case.model)
    layers = [4 if index not in (0, 2) or not name.startswith("qwen3_5") else 0 for index in range(4)]
    assert list(geometry.heads) == layers
    assert list(geometry.kv_heads or ()) == [n // 2 for n in layers]


def test_registry_is_unambiguous_and_complete() -> None:
    names = [t for family in FAMILIES for t in family.model_types]
    assert len(names) == len(set(names))
    assert not set(names) & set(REFUSED)
    for family in FAMILIES:
        assert family.box_format == "" or family.box_format in boxes.FORMATS
        assert ("{expression}" in family.grounding_prompt) == bool(family.grounding_prompt)
        assert bool(family.box_format) == bool(family.grounding_prompt), family.name


def test_every_supported_model_type_has_a_tiny_model_and_a_row_in_the_docs() -> None:
    """What is called supported is held to the oracle, by the tests that run over all tiny models."""
    tested = {build(name).model.config.model_type for name in BUILDERS}
    supported = {name for family in FAMILIES for name in family.model_types}
    assert tested == supported
    page = (Path(__file__).parents[2] / "docs" / "interventions.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| [^|]+ \| ([^|]+) \|", page.split("## Families")[1].split("\n\n")[1], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", "".join(cells))) == supported


def test_refused_and_unknown_types() -> None:
    with pytest.raises(HarnessHeadsError, match=r"'mllama' is refused: .*cross-attention"):
        family_of(model_like("mllama"))
    with pytest.raises(HarnessHeadsError, match="'qwen3_vll' has no family entry; did you mean 'qwen3_vl'"):
        family_of(model_like("qwen3_vll"))


def test_option_tokens() -> None:
    family = FAMILIES[0]
    assert family.option_ids(Words(), "A").tolist() == [11, 12]
    assert family.option_ids(Words(), "C").tolist() == [15]
    with pytest.raises(HarnessHeadsError, match="'two words' is more than one token"):
        family.option_ids(Words(), "two words")


def features(case: Any, processor: Any, picture: Image.Image) -> tuple[torch.Tensor, dict[str, Any]]:
    """Image features in token order for a picture, and the inputs that the processor made."""
    made = dict(processor(images=[picture], return_tensors="pt"))
    known = ("pixel_values", "image_grid_thw", "image_sizes", "image_position_ids", "pixel_attention_mask")
    inputs = {key: torch.as_tensor(np.asarray(made[key])) for key in known if key in made}
    if case.name == "llava_onevision":
        inputs["batch_num_images"] = torch.tensor([1])
    with torch.no_grad():
        found = case.model.model.get_image_features(**inputs)
    pooled = found.pooler_output if hasattr(found, "pooler_output") else found
    pooled = torch.cat(list(pooled)) if isinstance(pooled, list | tuple) else pooled
    return pooled.reshape(-1, pooled.shape[-1]), inputs


def painter(name: str) -> tuple[Any, tuple[int, int], int, int]:
    """Image processor, picture size, and the grid of cells that is painted one by one."""
    import transformers as t

    if name in ("qwen3_vl", "qwen2_5_vl"):
        processor = t.Qwen2VLImageProcessor(
            patch_size=4, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 64, "longest_edge": 4096}
        )
        return processor, (40, 24), 3, 5
    if name == "internvl":
        processor = t.GotOcr2ImageProcessor(
            size={"height": 16, "width": 16}, crop_to_patches=True, min_patches=1, max_patches=4
        )
        return processor, (32, 16), 2, 4
    if name == "llava":
        processor = t.CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
        return processor, (24, 8), 1, 3
    if name in ("llava_next", "llava_onevision"):
        kind = t.LlavaNextImageProcessor if name == "llava_next" else t.LlavaOnevisionImageProcessor
        extra = {"crop_size": {"height": 8, "width": 8}} if name == "llava_next" else {}
        size = {"shortest_edge": 8} if name == "llava_next" else {"height": 8, "width": 8}
        return kind(size=size, image_grid_pinpoints=[[8, 16]], **extra), (16, 8), 2, 4
    raise AssertionError(name)


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl", "internvl", "llava", "llava_next", "llava_onevision"])
def test_a_painted_cell_moves_the_token_that_the_layout_names(name: str) -> None:
    """Real image processors and a vision tower: paint one cell, see which token's features move most."""
    case = build(name)
    for parameter_name, parameter in case.model.named_parameters():
        # without mixing between tokens, what a token holds is what its cell shows
        if "language_model" not in parameter_name and ATTENTION_OUTPUT.search(parameter_name):
            parameter.data.zero_()
    processor, (width, height), rows, columns = painter(name)
    grey = Image.new("RGB", (width, height), (120, 120, 120))
    before, inputs = features(case, processor, grey)
    ids = prompt_ids([[IMAGE] * len(before)])
    family = family_of(case.model)
    holder = SimpleNamespace(image_processor=processor, encode=Words().encode)
    layout = family.layout(case.model.config, {**inputs, "input_ids": ids}, [(width, height)], holder)
    image = layout.images[0]
    inner = {(r, c) for r in range(rows) for c in range(columns)}
    if name == "llava":  # the outer thirds are cropped away
        inner = {(0, 1)}
    for r, c in sorted(inner):
        box = (c * width // columns, r * height // rows, (c + 1) * width // columns, (r + 1) * height // rows)
        painted = grey.copy()
        painted.paste((250, 10, 30), box)
        after, _ = features(case, processor, painted)
        moved = (after - before).norm(dim=-1)
        named = image.inside(Region((tuple(float(v) for v in box),)))  # type: ignore[arg-type]
        start = 0
        for view in image.views or (len(moved),):
            part, chosen = moved[start : start + view], named[start : start + view]
            start += view
            if name == "llava" or not bool(part.max() > 0):
                continue
            assert bool(chosen[int(part.argmax())]), f"cell {(r, c)}: token {int(part.argmax())} moved most"
    if name == "llava":
        side = grey.copy()
        side.paste((250, 10, 30), (0, 0, 4, 8))
        assert float((features(case, processor, side)[0] - before).norm()) == 0.0
        centre = image.inside(Region(((8.0, 0.0, 16.0, 8.0),)))
        assert bool(centre.all())


def test_turn_markers_of_a_second_turn_do_not_confuse() -> None:
    """A system turn before and an earlier closing marker leave the user turn where it is."""
    ids = torch.tensor([[1, 40, TURN_END, 2, 3, 101, IMAGE, IMAGE, IMAGE, IMAGE, 102, 50, 51, TURN_END, 2, 5]])
    case = build("gemma3")
    layout = family_of(case.model).layout(case.model.config, {"input_ids": ids}, [(16, 16)], case.tokenizer)
    assert layout.turn == (3, 13)
    assert layout.rows("question").tolist() == [10, 11, 12]
    assert layout.rows("tail").tolist() == [13, 14, 15]
