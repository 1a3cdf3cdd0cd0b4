"""Where the user turn of a prompt begins and ends, from the chat template's own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def user_turn(
    ids: Tensor, processor: Any, starts: Sequence[str], ends: Sequence[str], image_token: int
) -> tuple[int, int]:
    """First position of the user turn and the position after its last.

    The turn is the last one whose opening marker is found (or the whole prompt without a marker); it ends before the
    first closing marker behind it and behind the last image, else before the final row. Its opening marker and role
    word belong to it.
    """
    tokens = ids.tolist()
    images = [i for i, token in enumerate(tokens) if token == image_token]
    after_images = images[-1] + 1 if images else 0
    tokenizer = getattr(processor, "tokenizer", processor)
    start = 0
    for marker in _marker_ids(tokenizer, starts):
        # with images the turn is the one that holds the last of them
        found = [i for i in _occurrences(tokens, marker) if not images or i < images[-1]]
        if found:
            start = found[-1]
            break
    stop = len(tokens) - 1
    for marker in _marker_ids(tokenizer, ends):
        found = [i for i in _occurrences(tokens, marker) if i >= max(after_images, start + 1)]
        if found:
            stop = found[0]
            break
    return start, stop


def _marker_ids(tokenizer: Any, markers: Sequence[str]) -> list[list[int]]:
    if tokenizer is None or not hasattr(tokenizer, "encode"):
        return []
    encoded = [tokenizer.encode(marker, add_special_tokens=False) for marker in markers]
    return [ids for ids in encoded if ids]


def _occurrences(tokens: Sequence[int], marker: Sequence[int]) -> list[int]:
    n = len(marker)
    return [i for i in range(len(tokens) - n + 1) if list(tokens[i : i + n]) == list(marker)]
