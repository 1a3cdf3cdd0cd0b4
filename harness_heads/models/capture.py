"""Let a host prepare a request, and answer it ourselves in place of ``model.generate``.

No preprocessing of any host is copied: the host is called with plain requests while its model's ``generate`` is a
stand-in that receives the very tensors the host would generate from. The stand-in answers with an empty turn, which
the host then decodes, trims and throws at its own progress bar as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from harness_heads.errors import HarnessHeadsError

Handler = Callable[[int, Mapping[str, torch.Tensor], list[Image.Image]], None]
"""``handler(request number, model inputs of batch 1, images in the prompt)``."""


@dataclass
class Current:
    """The request that the host is preparing right now: its number, and the images that it shows."""

    number: int | None = None
    images: tuple[Image.Image, ...] = ()


def run_through_host(
    host_generate: Callable[[list[Any]], Any],
    model: Any,
    requests: Sequence[Any],
    handler: Handler,
    edit_text: Callable[[int, str], str] | None = None,
) -> None:
    """Have the host prepare every request and hand its inputs to ``handler``, one prompt at a time.

    Args:
        host_generate: the host's own ``generate_until``; its batch size must be 1.
        model: the transformers model whose ``generate`` the host calls.
        requests: lmms-eval chat instances.
        handler: called once per request, in the host's order.
        edit_text: replaces the text of request number ``i`` (families word some questions themselves).

    Raises:
        HarnessHeadsError: if the host swallowed a failure or never reached ``generate``.
    """
    current = Current()
    done: set[int] = set()

    def stand_in(*args: Any, **kwargs: Any) -> torch.Tensor:
        inputs = {k: v for k, v in kwargs.items() if isinstance(v, torch.Tensor)}
        ids = inputs.get("input_ids", args[0] if args else None)
        if ids is None or ids.shape[0] != 1 or current.number is None:
            raise HarnessHeadsError("the host does not prepare one prompt at a time; its batch size must be 1")
        handler(current.number, inputs, list(current.images))
        done.add(current.number)
        end = kwargs.get("eos_token_id") or model.generation_config.eos_token_id or 0
        end = end[0] if isinstance(end, list | tuple) else end
        return torch.cat([ids, ids.new_full((1, 1), int(end))], dim=1)

    call_host(host_generate, model, watched(requests, current, edit_text), stand_in)
    missing = sorted(set(range(len(requests))) - done)
    if missing:
        raise HarnessHeadsError(f"the host answered request {missing[0]} without its model; it cannot be wrapped")


def call_host(
    host_generate: Callable[[list[Any]], Any], model: Any, requests: list[Any], generate: Callable[..., Any]
) -> Any:
    """Call the host while ``generate`` stands in for its model's; its failure is raised even if the host hides it."""
    failures: list[BaseException] = []

    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return generate(*args, **kwargs)
        except BaseException as error:
            failures.append(error)
            raise

    with _replaced(model, "generate", guarded):
        try:
            answers = host_generate(requests)
        except Exception:
            if not failures:
                raise
    if failures:
        raise failures[0]
    return answers


def watched(requests: Sequence[Any], current: Current, edit_text: Callable[[int, str], str] | None = None) -> list[Any]:
    """Copies of the requests that keep ``current`` up to date as the host turns from one to the next."""
    return [_watched(request, number, current, edit_text) for number, request in enumerate(requests)]


def _watched(request: Any, number: int, current: Current, edit_text: Callable[[int, str], str] | None) -> Any:
    """A copy of the request that notes when the host turns to it and which images it shows."""
    context, doc_to_messages, *rest = request.args

    def watching(doc: Any) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = doc_to_messages(doc)
        images = []
        for message in messages:
            for part in message["content"]:
                if part["type"] == "image":
                    images.append(part["url"])
                elif part["type"] == "text" and edit_text is not None:
                    part["text"] = edit_text(number, part["text"])
        current.number, current.images = number, tuple(images)
        return messages

    plain = copy(request)
    plain.arguments = (context, watching, *rest)
    return plain


@contextmanager
def _replaced(target: Any, name: str, value: Any) -> Iterator[None]:
    """Shadow an attribute on the instance and take the shadow away again."""
    before = target.__dict__.get(name)
    setattr(target, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(target, name)
        else:
            setattr(target, name, before)
