"""Interventions while the model's own forward or ``generate`` runs, with a key/value cache and padded batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from harness_heads.attention import Call, Handler, handling, installed
from harness_heads.engine_handlers import Overwrite
from harness_heads.engine_prompts import Prompts, same_prompt
from harness_heads.errors import HarnessHeadsError
from harness_heads.interventions import Action
from harness_heads.reading import region_sums


@dataclass(eq=False)
class Watch:
    """Prepares the handler before every forward of the model: new targets at a prefill, positions at a decode step."""

    prompts: Prompts
    overwrite: Overwrite
    forwards: int = 0
    acted: list[int] = field(default_factory=list)
    moved: list[bool] = field(default_factory=list)
    prefill: bool = False
    same_prompt: bool = False
    vision: dict[str, Any] = field(default_factory=dict)
    clean: dict[int, Tensor] = field(default_factory=dict)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # generate runs the vision tower before the prefill and drops its arguments (grids, sizes)
        arguments = {**self.vision, **{name: value for name, value in kwargs.items() if value is not None}}
        if args:
            arguments["input_ids"] = args[0]
        cache = arguments.get("cache", arguments.get("past_key_values"))
        seen = _seen(cache)
        if seen == 0:
            if arguments.get("input_ids") is None:
                raise HarnessHeadsError("interventions find image tokens by input_ids; do not pass inputs_embeds alone")
            self.collect()
            ids = arguments["input_ids"]
            self.same_prompt = same_prompt(ids, arguments)
            self.overwrite = Overwrite(self.prompts.targets(arguments), ids.device, 0, prove=True)
        new = arguments["input_ids"] if arguments.get("input_ids") is not None else arguments["inputs_embeds"]
        if seen:
            self._refuse_foreign(seen, kwargs, arguments.get("input_ids"))
        self.overwrite.length = seen + new.shape[1]
        self.prefill = seen == 0
        if self.prefill:
            self.clean = {}
        self.forwards += 1

    def _refuse_foreign(self, seen: int, given: Mapping[str, Any], ids: Tensor | None) -> None:
        """Raise for a cache whose prompt was not watched: what it holds is not known, and nothing would act."""
        if seen > self.overwrite.length:
            raise HarnessHeadsError(
                f"the cache holds {seen} tokens, of which this context has seen {self.overwrite.length}: open the "
                "context before the prompt is read, and read a prompt anew for every context"
            )
        holds = ids is not None and bool((ids == self.prompts.family.image_token(self.prompts.model.config)).any())
        pixels = any("pixel_values" in name and value is not None for name, value in given.items())
        # a model may generate the image token: one token without pixels is text
        if holds and ids is not None and (pixels or ids.shape[1] > 1):
            raise HarnessHeadsError("a new image on a filled cache is not supported; give the whole prompt at once")

    def attend(self, layer: int, call: Call) -> Tensor:
        shared = self._shared_action()
        if self.prefill and shared is not None and layer in self.overwrite.plan:
            row, action = shared
            rows, keys = action.rows.nonzero()[:, 0], action.keys[:, None]
            if len(rows) and call.query.shape[2] == action.length:
                device = call.query.device
                self.clean[layer] = region_sums(call, rows.to(device), keys.to(device), row)[:, :, 0].mean(1)
        return self.overwrite.attend(layer, call)

    def _shared_action(self) -> tuple[int, Action] | None:
        """The batch row of an empty set beside other sets on the same prompt, and what is done to those."""
        targets = self.overwrite.targets
        empty = [row for row, target in enumerate(targets) if target.action is None]
        actions = {id(target.action): target.action for target in targets if target.action is not None}
        if not empty or len(actions) != 1 or not self.same_prompt:
            return None
        action = next(iter(actions.values()))
        assert action is not None
        return empty[0], action

    def doses(self) -> list[dict[str, float] | None]:
        """Dose per row of the last prefill, ``{"before", "after"}`` over the prompt's rows in scope.

        *Before* is read off the row of the empty set, the clean pass of the batch: ``None`` for that row, and for all
        rows where the batch holds no empty set, several prompts, or no row in scope.
        """
        found: list[dict[str, float] | None] = []
        for row, target in enumerate(self.overwrite.targets):
            known = all(layer in self.clean for layer, _ in target.heads)
            if target.action is None or not known or not self.clean:
                found.append(None)
                continue
            before = sum(float(self.clean[layer][head]) for layer, head in target.heads) / len(target.heads)
            pairs = len(target.heads) * int(target.action.rows.sum())
            found.append({"before": before, "after": float(self.overwrite.mass[row]) / pairs})
        return found

    def collect(self) -> None:
        """Note how much the handler of the prompts so far has done."""
        for row, target in enumerate(self.overwrite.targets):
            if target.action is not None:
                self.acted.append(int(self.overwrite.acted[row]))
                self.moved.append(row in self.overwrite.moved)

    def check(self) -> None:
        """Raise if an intervention that should have acted touched nothing, or moved no attention at all."""
        self.collect()
        name = self.prompts.condition.name
        if not self.forwards and any(self.prompts.heads):
            raise HarnessHeadsError(
                f"condition {name}: no forward of this model ran inside the context, so that nothing was done; "
                "call the model that the context was given"
            )
        if any(count == 0 for count in self.acted):
            raise HarnessHeadsError(
                f"condition {name}: no row was touched in this context (phase or rows never came up); it did not act"
            )
        if not all(self.moved):
            raise HarnessHeadsError(
                f"condition {name}: the heads' attention mass did not move in {self.moved.count(False)} of "
                f"{len(self.moved)} prompts; these heads cannot show an effect here"
            )


def _seen(cache: Any) -> int:
    if cache is None:
        return 0
    if getattr(cache, "is_compileable", False):
        raise HarnessHeadsError("static caches are not supported; generate with the default dynamic cache")
    if not hasattr(cache, "get_seq_length"):
        raise HarnessHeadsError(f"cache of type {type(cache).__name__} is not supported; use the default dynamic cache")
    cache.reorder_cache = _refuse_beams
    return int(cache.get_seq_length())


def _refuse_beams(*_: Any, **__: Any) -> NoReturn:
    raise HarnessHeadsError("beam search is not supported under an intervention; generate with num_beams=1")


@contextmanager
def acting(prompts: Prompts, around: Callable[[Watch], Handler] = lambda watch: watch) -> Iterator[Watch]:
    """The intervention acts in every forward and ``generate`` of the model inside this context.

    A forward without a cache, or with an empty one, is a new prompt; later forwards on that cache continue it.

    Args:
        around: puts what looks on around the watch.
    """
    model = prompts.model
    watch = Watch(prompts, Overwrite((), torch.device("cpu"), 0))
    hook = model.register_forward_pre_hook(watch, with_kwargs=True)
    try:
        with (
            installed(model, prompts.family),
            handling(around(watch)),
            _vision_arguments(model, watch.vision),
            _generation_refused(model),
        ):
            yield watch
        watch.check()
    finally:
        hook.remove()


@contextmanager
def _generation_refused(model: nn.Module) -> Iterator[None]:
    """Refuse ways of ``generate`` in which later forwards cannot be told from prompts."""

    def checked(original: Any) -> Any:
        @wraps(original)
        def preparing(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            config: Any = result[0]
            if config.use_cache is False:
                raise HarnessHeadsError("under an intervention generate needs its cache; leave out use_cache=False")
            if getattr(config, "prefill_chunk_size", None):
                raise HarnessHeadsError(
                    "a prompt in chunks is not supported under an intervention (prefill_chunk_size)"
                )
            if (config.num_beams or 1) > 1:
                _refuse_beams()
            return result

        return preparing

    with _patched(model, "_prepare_generation_config", checked):
        yield


@contextmanager
def _vision_arguments(model: nn.Module, found: dict[str, Any]) -> Iterator[None]:
    """Note what the vision tower is called with in this context; the call itself is left as it is."""

    def noted(original: Any) -> Any:
        @wraps(original)
        def noting(*args: Any, **kwargs: Any) -> Any:
            found.clear()
            # large, and looked at only to tell whether the rows of a batch show the same images
            found.update(kwargs)
            return original(*args, **kwargs)

        return noting

    with _patched(model.base_model, "get_image_features", noted):
        yield


@contextmanager
def _patched(owner: Any, name: str, around: Callable[[Any], Any]) -> Iterator[None]:
    """``owner.name`` wrapped for the length of the context; what the instance held before is put back."""
    original = getattr(owner, name, None)
    if original is None:
        yield
        return
    own = vars(owner).get(name)
    setattr(owner, name, around(original))
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
