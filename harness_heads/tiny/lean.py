"""A lean forward pass of the embedded model, for training: same weights, same numbers, less work.

It computes what ``Qwen3VLForConditionalGeneration`` computes (a test holds the difference below 1e-4), but runs the
constant prompt prefix once, lets several questions share one image, and can cut image keys from chosen heads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen3VLForConditionalGeneration
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from .ops import head_norm, rotate

# height and width in patches of 16 pixels of the three kinds of picture
GRIDS = {"single": (4, 4), "grid": (8, 8), "strip": (4, 24)}
_MAX_QUESTION = 72
LATE_LAYERS = 3


@dataclass(frozen=True)
class Block:
    """Questions of one length about the pictures of a group.

    ids: (pictures * each, T) token ids after the image, padded on the right; picture-major.
    each: Questions per picture.
    rows: (n,) positions in the flattened (pictures * each * T) whose hidden states are wanted; None wants all.
    late: Bool (pictures * each, T), rows that in the first ``LATE_LAYERS`` layers see only the prefix and each other.
    """

    ids: Tensor
    each: int
    rows: Tensor | None = None
    late: Tensor | None = None

    def wanted(self) -> Tensor:
        """Positions of the wanted rows."""
        return torch.arange(self.ids.numel()) if self.rows is None else self.rows


@dataclass(frozen=True)
class Group:
    """Pictures of one kind with their questions.

    kind: Key of ``GRIDS``.
    patches: (pictures, n, 256) grey patches in merge-block order, values -1..1.
    blocks: Question blocks.
    cut: Bool, (pictures or 1, layers, heads or 1): image keys hidden from that head at every row; None cuts nothing.
    """

    kind: str
    patches: Tensor
    blocks: tuple[Block, ...]
    cut: Tensor | None = None


@dataclass
class Output:
    """hidden: per group, per block (wanted rows, 128) after the final norm; merged: per group
    (pictures, image tokens, 128); image_mass: per layer, mean attention mass on image keys of each head
    over the question rows of the groups of kind "single", (heads,)."""

    hidden: list[list[Tensor]] = field(default_factory=list)
    merged: list[Tensor] = field(default_factory=list)
    image_mass: list[Tensor] = field(default_factory=list)


# called with (layer, group, block, attention of question rows on image keys (questions, heads, T, image tokens))
Capture = Callable[[int, int, int, Tensor], None]


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class Lean:
    """Runs groups of pictures and questions through a model's weights.

    Args:
        model: The model; its parameters are used in place, so gradients flow to them.
        prefix: (P,) token ids from the start of the prompt to ``<|vision_start|>``.
        vision_end: Token id that follows the image.
    """

    def __init__(self, model: Qwen3VLForConditionalGeneration, prefix: Tensor, vision_end: int) -> None:
        self.model = model
        self.text = model.model.language_model
        self.visual = model.model.visual
        self.config = model.config.text_config
        self.prefix = prefix
        self.vision_end = vision_end
        self._places = {kind: self._place(kind) for kind in GRIDS}
        self._rope = {kind: self._rope_of(kind) for kind in GRIDS}

    @staticmethod
    def tokens(kind: str) -> int:
        """Number of image tokens of a kind of picture."""
        height, width = GRIDS[kind]
        return height * width // 4

    def _place(self, kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        height, width = GRIDS[kind]
        thw = torch.tensor([[1, height, width]])
        index, weight = get_vision_interpolation_indices_and_weights(
            thw,
            num_grid_per_side=self.visual.num_grid_per_side,
            mode=self.visual.interpolation_mode,
            align_corners=self.visual.interpolation_align_corners,
            spatial_merge_size=2,
            kwargs={},
        )
        ids = get_vision_position_ids(thw, 2, kwargs={})
        cos, sin = self.visual.rotary_pos_emb(torch.zeros(1), ids)
        return index, weight, cos, sin

    def _rope_of(self, kind: str) -> tuple[Tensor, Tensor]:
        start, count = len(self.prefix), self.tokens(kind)
        total = start + count + 1 + _MAX_QUESTION
        types = torch.zeros(1, total, dtype=torch.int)
        types[0, start : start + count] = 1
        thw = torch.tensor([[1, *GRIDS[kind]]])
        positions, _ = self.model.model.get_rope_index(
            torch.zeros(1, total, dtype=torch.long), mm_token_type_ids=types, image_grid_thw=thw
        )
        cos, sin = self.text.rotary_emb(torch.zeros(1), positions)
        return cos[0], sin[0]

    def see(self, kind: str, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Merged image tokens and DeepStack features of pictures.

        Args:
            kind: Kind of the pictures.
            patches: (pictures, n, 256) grey patches.

        Returns:
            (pictures, tokens, 128) and one such tensor per DeepStack level.
        """
        index, weight, cos, sin = self._places[kind]
        visual, (count, n, _) = self.visual, patches.shape
        proj = visual.patch_embed.proj
        # three equal colours and two equal frames: the six kernels act as their sum
        kernel = proj.weight.view(proj.weight.shape[0], 6, 256).sum(1)
        x = F.linear(patches, kernel, proj.bias) + (visual.pos_embed(index) * weight[:, :, None]).sum(1)
        levels = []
        for number, layer in enumerate(visual.blocks):
            heads = layer.attn.num_heads
            q, k, v = layer.attn.qkv(layer.norm1(x)).view(count, n, 3, heads, -1).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
            x = x + layer.attn.proj(seen.transpose(1, 2).reshape(count, n, -1))
            x = x + layer.mlp(layer.norm2(x))
            if number in visual.deepstack_visual_indexes:
                merger = visual.deepstack_merger_list[visual.deepstack_visual_indexes.index(number)]
                levels.append(merger(x).view(count, n // 4, -1))
        return visual.merger(x).view(count, n // 4, -1), levels

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token scores of rows: (rows, 128) -> (rows, vocabulary)."""
        return F.linear(hidden, self.text.embed_tokens.weight)

    def run(self, groups: list[Group], capture: Capture | None = None) -> Output:
        """Hidden states of all question rows.

        Args:
            groups: Pictures and questions.
            capture: Receives the attention of question rows on image keys, layer by layer.
        """
        out = Output()
        pieces, ropes, stacks = [self.text.embed_tokens(self.prefix)], [], []
        start = len(self.prefix)
        first = self._rope[groups[0].kind]
        ropes.append((first[0][:start], first[1][:start]))
        end = self.text.embed_tokens.weight[self.vision_end]
        for group in groups:
            merged, levels = self.see(group.kind, group.patches)
            out.merged.append(merged)
            count, n, width = merged.shape
            pieces.append(torch.cat((merged, end.expand(count, 1, width)), 1).reshape(-1, width))
            stacks.append([F.pad(level, (0, 0, 0, 1)).reshape(-1, width) for level in levels])
            cos, sin = self._rope[group.kind]
            here = slice(start, start + n + 1)
            ropes.append((cos[here].repeat(count, 1), sin[here].repeat(count, 1)))
            for block in group.blocks:
                rows, length = block.ids.shape
                pieces.append(self.text.embed_tokens(block.ids.reshape(-1)))
                here = slice(start + n + 1, start + n + 1 + length)
                ropes.append((cos[here].repeat(rows, 1), sin[here].repeat(rows, 1)))
        sizes = [len(piece) for piece in pieces]
        x = torch.cat(pieces)
        cos = torch.cat([rope[0] for rope in ropes])[:, None]
        sin = torch.cat([rope[1] for rope in ropes])[:, None]
        keep, counts = self._kept_rows(groups, sizes)
        final = len(self.text.layers) - 1
        for number, layer in enumerate(self.text.layers):
            seen = self._attention(number, layer, x, cos, sin, groups, sizes, out, capture)
            if number == final:  # nothing reads the other rows any more
                x, seen = x[keep], seen[keep]
            x = x + layer.self_attn.o_proj(seen)
            x = x + layer.mlp(_rms(x, layer.post_attention_layernorm.weight, self.config.rms_norm_eps))
            if number < len(self.visual.deepstack_visual_indexes):
                x = x + self._spread(groups, sizes, [stack[number] for stack in stacks], x)
        x = _rms(x, self.text.norm.weight, self.config.rms_norm_eps)
        parts = iter(torch.split(x, counts))
        for group in groups:
            out.hidden.append([next(parts) for _ in group.blocks])
        return out

    @staticmethod
    def _kept_rows(groups: list[Group], sizes: list[int]) -> tuple[Tensor, list[int]]:
        kept, at = [], 1
        for group in groups:
            for number, block in enumerate(group.blocks, start=1):
                kept.append(sum(sizes[: at + number]) + block.wanted())
            at += 1 + len(group.blocks)
        return torch.cat(kept), [len(rows) for rows in kept]

    @staticmethod
    def _spread(groups: list[Group], sizes: list[int], levels: list[Tensor], x: Tensor) -> Tensor:
        pieces, at = [x.new_zeros(sizes[0], x.shape[1])], 1
        for group, level in zip(groups, levels, strict=True):
            pieces.append(level)
            text = sum(sizes[at + 1 : at + 1 + len(group.blocks)])
            pieces.append(x.new_zeros(text, x.shape[1]))
            at += 1 + len(group.blocks)
        return torch.cat(pieces)

    def _attention(
        self,
        number: int,
        layer: Any,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        groups: list[Group],
        sizes: list[int],
        out: Output,
        capture: Capture | None,
    ) -> Tensor:
        attn, eps, dim = layer.self_attn, self.config.rms_norm_eps, self.config.head_dim
        h = _rms(x, layer.input_layernorm.weight, eps)
        q = head_norm(attn.q_proj(h).view(len(x), -1, dim), eps) * attn.q_norm.weight
        k = head_norm(attn.k_proj(h).view(len(x), -1, dim), eps) * attn.k_norm.weight
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        v = attn.v_proj(h).view(len(x), -1, dim)
        qs, ks, vs = (torch.split(part, sizes) for part in (q, k, v))
        seen = [self._attend(qs[0][None], ks[0][None], vs[0][None], None, None)[0]]
        at = 1
        for g, group in enumerate(groups):
            count, n = len(group.patches), self.tokens(group.kind)
            cut = None if group.cut is None else group.cut[:, number]
            if cut is not None and not bool(cut.any()):
                cut = None

            def shaped(parts: tuple[Tensor, ...], i: int, rows: int) -> Tensor:
                return parts[i].view(rows, -1, parts[i].shape[1], dim)

            image_k = torch.cat((ks[0].expand(count, *ks[0].shape), shaped(ks, at, count)), 1)
            image_v = torch.cat((vs[0].expand(count, *vs[0].shape), shaped(vs, at, count)), 1)
            keys = slice(sizes[0], sizes[0] + n)
            seen.append(self._attend(shaped(qs, at, count), image_k, image_v, cut, keys)[0])
            at += 1
            for b, block in enumerate(group.blocks):
                rows = len(block.ids)
                wide_k = torch.cat((image_k.repeat_interleave(block.each, 0), shaped(ks, at, rows)), 1)
                wide_v = torch.cat((image_v.repeat_interleave(block.each, 0), shaped(vs, at, rows)), 1)
                wide_cut = None if cut is None else (cut if len(cut) == 1 else cut.repeat_interleave(block.each, 0))
                want = capture is not None or group.kind == "single"
                late = block.late if number < LATE_LAYERS else None
                result, mass = self._attend(shaped(qs, at, rows), wide_k, wide_v, wide_cut, keys, want, late)
                seen.append(result)
                if mass is not None and group.kind == "single":
                    out.image_mass.append(mass.sum(-1).mean((0, 2)))
                if mass is not None and capture is not None:
                    capture(number, g, b, mass)
                at += 1
        return torch.cat(seen)

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cut: Tensor | None,
        image: slice | None,
        weights: bool = False,
        late: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Causal attention of the last rows. q (rows, T, heads, dim), k and v (rows, K, kv heads, dim)."""
        rows, length, heads, dim = q.shape
        total, kv = k.shape[1], k.shape[2]
        share = heads // kv
        q = q.view(rows, length, kv, share, dim).permute(0, 2, 3, 1, 4)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        bias = torch.full((length, total), float("-inf")).triu(total - length + 1)
        if cut is not None and image is not None:
            wide = cut.view(len(cut), kv, share, 1, 1) if cut.shape[1] == heads else cut.view(-1, 1, 1, 1, 1)
            columns = torch.zeros(total)
            columns[image] = float("-inf")
            bias = bias + torch.where(wide, columns, 0.0)
        else:
            bias = bias.expand(1, 1, 1, length, total)
        if late is not None and image is not None:
            seen = torch.ones(rows, total, dtype=torch.bool)
            seen[:, image.start :] = F.pad(late, (total - image.start - length, 0))
            hidden = late[:, :, None] & ~seen[:, None]
            bias = bias + torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))[:, None, None]
        if not weights:
            wide_bias = bias.expand(-1, bias.shape[1], share, -1, -1).reshape(
                bias.shape[0], bias.shape[1], share * length, total
            )
            wide_q = q.reshape(rows, kv, share * length, dim)
            mixed = F.scaled_dot_product_attention(wide_q, k, v, attn_mask=wide_bias)
            mass = None
        else:
            scores = torch.matmul(q.reshape(rows, kv, share * length, dim), k.transpose(2, 3)) * dim**-0.5
            attention = (scores.view(rows, kv, share, length, total) + bias).softmax(-1)
            mixed = torch.matmul(attention.view(rows, kv, share * length, total), v)
            mass = attention.reshape(rows, heads, length, total)[..., image]
        mixed = mixed.view(rows, kv, share, length, dim).permute(0, 3, 1, 2, 4)
        return mixed.reshape(rows * length, heads * dim), mass
