"""Installing the attention function: names, scope, reversal, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from tiny_models import BUILDERS, build
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness_heads import attention
from harness_heads.attention import Call, handling, installed, kernel_name
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import family_of


class Watcher:
    """Notes the layers that are reached and leaves them alone."""

    def __init__(self) -> None:
        self.layers: list[int] = []

    def attend(self, layer: int, call: Call) -> torch.Tensor:
        self.layers.append(layer)
        return call.base()


def test_every_name_has_its_mask_function() -> None:
    """A name without a mask function would lose padding and windows in silence."""
    for base in attention.BASES:
        name = f"harness_heads_{base}"
        assert name in ALL_ATTENTION_FUNCTIONS.valid_keys()
        assert ALL_MASK_ATTENTION_FUNCTIONS[name] is ALL_MASK_ATTENTION_FUNCTIONS[base]


@pytest.mark.parametrize("name", BUILDERS)
def test_reaches_every_layer_with_heads_and_nothing_else(name: str) -> None:
    case = build(name)
    family = family_of(case.model)
    geometry = family.geometry(case.model)
    before = {id(m.config): m.config._attn_implementation for m in case.model.modules() if hasattr(m, "config")}
    watcher = Watcher()
    with torch.no_grad():
        clean = case.model(**case.inputs).logits
        with installed(case.model, family), handling(watcher):
            inside = case.model(**case.inputs).logits
            changed = {
                id(m.config) for m in case.model.modules()
                if hasattr(m, "config") and m.config._attn_implementation != before[id(m.config)]
            }  # fmt: skip
    assert watcher.layers == [layer for layer, count in enumerate(geometry.heads) if count]
    assert changed == {id(family.decoder(case.model).config)}
    assert torch.equal(inside, clean)
    after = {id(m.config): m.config._attn_implementation for m in case.model.modules() if hasattr(m, "config")}
    assert after == before


def test_eager_hosts_keep_their_kernel() -> None:
    case = build("llava")
    case.model.get_decoder().config._attn_implementation_internal = "eager"
    family = family_of(case.model)
    assert kernel_name(case.model, family) == "eager"
    with torch.no_grad():
        clean = case.model(**case.inputs).logits
        with installed(case.model, family) as base, handling(Watcher()):
            assert base == "eager"
            assert torch.equal(case.model(**case.inputs).logits, clean)
    assert case.model.get_decoder().config._attn_implementation == "eager"


def test_reversed_after_an_error() -> None:
    case = build("llava")
    family = family_of(case.model)

    class Broken:
        def attend(self, layer: int, call: Call) -> torch.Tensor:
            raise RuntimeError("broken")

    with (
        pytest.raises(RuntimeError, match="broken"),
        torch.no_grad(),
        installed(case.model, family),
        handling(Broken()),
    ):
        case.model(**case.inputs)
    assert case.model.get_decoder().config._attn_implementation == "sdpa"
    with handling(Watcher()):
        pass


def test_sinks_and_dropout_are_refused() -> None:
    case = build("llava")
    family = family_of(case.model)
    module = family.attention_modules(case.model)[0]
    function = ALL_ATTENTION_FUNCTIONS["harness_heads_sdpa"]
    q = torch.zeros(1, 4, 3, 12)
    with installed(case.model, family), handling(Watcher()):
        with pytest.raises(HarnessHeadsError, match="layer 0: attention sinks"):
            function(module, q, q[:, :2], q[:, :2], None, s_aux=torch.zeros(4))
        with pytest.raises(HarnessHeadsError, match="layer 0: attention dropout is on"):
            function(module, q, q[:, :2], q[:, :2], None, dropout=0.1)


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_visible_reads_every_form_of_mask(kind: str) -> None:
    keys = torch.zeros(1, 1, 5, 2)
    causal = torch.tril(torch.ones(3, 5, dtype=torch.bool), 2)
    mask = {
        "none": None,
        "bool": causal[None, None],
        "float": torch.where(causal, 0.0, torch.finfo(torch.float32).min)[None, None],
    }[kind]
    call = Call(torch.zeros(1, 1, 3, 2), keys, keys, mask, 1.0, None, lambda: keys)
    rows = torch.tensor([0, 2])
    assert call.visible(rows).tolist() == causal[rows].tolist()
