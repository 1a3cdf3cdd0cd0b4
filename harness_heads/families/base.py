"""What one model family needs: where its heads are, how its image tokens lie, how it answers and draws boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from harness_heads.errors import HarnessHeadsError
from harness_heads.families.turns import user_turn
from harness_heads.heads import Geometry
from harness_heads.layouts import ImageTokens, PromptLayout


@dataclass(frozen=True)
class PromptInputs:
    """What a family's layout rule may look at, for one prompt without padding.

    Attributes:
        ids: token ids; long (T,).
        inputs: everything that the processor made (``image_grid_thw``, ``pixel_values`` ...).
        config: the model's configuration.
        processor: the host's processor or tokenizer, ``None`` where there is none.
        sizes: width and height of each image as shown, in pixels.
    """

    ids: Tensor
    inputs: Mapping[str, Any]
    config: Any
    processor: Any
    sizes: tuple[tuple[int, int], ...]


LayoutRule = Callable[[PromptInputs], tuple[ImageTokens, ...]]


@dataclass(frozen=True)
class Family:
    """One model family; frozen, and free of weights.

    Attributes:
        name: what reports call it.
        model_types: values of ``config.model_type`` that it serves.
        image_layout: tokens and cells of every image of a prompt.
        image_token: id of the image token in a configuration.
        box_format: name of its text form of boxes (see :mod:`harness_heads.boxes`); ``""`` where none is documented.
        grounding_prompt: how it is asked for a box; ``{expression}`` is filled in.
        turn_start, turn_end: token strings that open and close a user turn, first known one wins.
        answer_prefix: text that the assistant turn has to begin with before a letter can follow.
        option_forms: surface forms of an option whose probabilities are summed.
        replay: ``suffix`` if a row's layer output depends on earlier rows through keys and values alone; ``full`` if a
            layer carries other state along the sequence, so that every row has to be replayed.
        may_look_ahead: whether some rows may see later keys.
        note: what users should know about it.
    """

    name: str
    model_types: tuple[str, ...]
    image_layout: LayoutRule
    image_token: Callable[[Any], int] = field(default=lambda config: int(config.image_token_id))
    box_format: str = ""
    grounding_prompt: str = ""
    turn_start: tuple[str, ...] = ("<|im_start|>user",)
    turn_end: tuple[str, ...] = ("<|im_end|>",)
    answer_prefix: str = ""
    option_forms: tuple[str, ...] = ("{}", " {}")
    replay: Literal["suffix", "full"] = "suffix"
    may_look_ahead: bool = False
    note: str = ""

    def replay_way(self, model: nn.Module) -> Literal["suffix", "full", "never"]:
        """How rows of this model can be replayed; ``never`` where layers reuse the keys of earlier ones.

        A layer without softmax attention carries a state from row to row (whatever text model sits in the family), so
        that its rows cannot begin in the middle of the prompt.
        """
        config: Any = self.decoder(model).config
        if getattr(config, "num_kv_shared_layers", 0):
            return "never"
        stateless = len(self.attention_modules(model)) == len(self.layers(model))
        return self.replay if stateless else "full"

    def decoder(self, model: nn.Module) -> nn.Module:
        """The text decoder: it owns ``layers`` and ``norm``."""
        # torch types every attribute of a module as Tensor | Module
        decoder: nn.Module = model.get_decoder()  # type: ignore[operator]
        if not hasattr(decoder, "layers"):
            raise HarnessHeadsError(f"family {self.name}: {type(decoder).__name__} has no layers; load the full model")
        return decoder

    def layers(self, model: nn.Module) -> list[nn.Module]:
        """Decoder layers in order."""
        # torch types every attribute of a module as Tensor | Module
        return list(self.decoder(model).layers)  # type: ignore[arg-type]

    def attention_modules(self, model: nn.Module) -> dict[int, nn.Module]:
        """Softmax self-attention modules by decoder layer; layers without softmax heads are left out."""
        found = {}
        for index, layer in enumerate(self.layers(model)):
            attention = getattr(layer, "self_attn", None)
            if attention is not None and hasattr(attention, "o_proj") and hasattr(attention, "head_dim"):
                found[index] = attention
        return found

    def geometry(self, model: nn.Module) -> Geometry:
        """Query and key/value heads of every decoder layer, 0 where a layer has no softmax heads."""
        modules = self.attention_modules(model)
        if not modules:
            raise HarnessHeadsError(f"family {self.name}: no layer with softmax attention heads was found")
        heads, kv_heads = [], []
        for index in range(len(self.layers(model))):
            count = heads_of(modules[index]) if index in modules else 0
            heads.append(count)
            # torch types every attribute of a module as Tensor | Module
            kv_heads.append(count // int(modules[index].num_key_value_groups) if index in modules else 0)  # type: ignore[arg-type]
        return Geometry(tuple(heads), tuple(kv_heads))

    def layout(
        self,
        config: Any,
        inputs: Mapping[str, Any],
        image_sizes: Sequence[tuple[int, int]] = (),
        processor: Any = None,
        row: int = 0,
    ) -> PromptLayout:
        """Layout of prompt ``row`` of ``inputs``, in positions without its padding.

        Args:
            image_sizes: width and height of the images as shown; needed for regions and for tiled layouts.
        """
        ids = inputs["input_ids"][row].cpu()
        if inputs.get("attention_mask") is not None:
            ids = ids[inputs["attention_mask"][row].cpu().bool()]
        sizes = tuple((int(w), int(h)) for w, h in image_sizes)
        images = self.image_layout(PromptInputs(ids, inputs, config, processor, sizes))
        turn = user_turn(ids, processor, self.turn_start, self.turn_end, self.image_token(config))
        return PromptLayout(len(ids), images, turn, self.may_look_ahead)

    def option_ids(self, tokenizer: Any, option: str) -> Tensor:
        """Token ids of an option's surface forms; long (n,), sorted.

        Raises:
            HarnessHeadsError: if no form is a single token.
        """
        ids = set()
        for form in self.option_forms:
            tokens = tokenizer.encode(form.format(option), add_special_tokens=False)
            if len(tokens) == 1:
                ids.add(int(tokens[0]))
        if not ids:
            raise HarnessHeadsError(
                f"option {option!r} is more than one token for this tokenizer; ask with letters (A, B, C, D)"
            )
        return torch.tensor(sorted(ids))


def heads_of(attention: nn.Module) -> int:
    """Query heads of one attention module, from the width of what ``o_proj`` reads, where it tells."""
    module: Any = attention
    width = getattr(module.o_proj, "in_features", None)
    return int(module.config.num_attention_heads) if width is None else int(width) // int(module.head_dim)
