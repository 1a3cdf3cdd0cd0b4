"""Proof that text is generated under the intervention: prompt and decode steps against the dense reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from harness_heads.attention import Handler, handling, installed
from harness_heads.conditions import Condition
from harness_heads.engine_generate import Watch
from harness_heads.heads import HeadSet
from harness_heads.regions import Region
from harness_heads.verify import compared, largest_gap
from harness_heads.verify_beside import Beside, Findings, local_tolerance
from harness_heads.verify_reference import Dense, DenseRow

if TYPE_CHECKING:
    from harness_heads.engine import Engine

STEPS = 4  # the first token comes of the prompt, the others of decode steps over the cache
# what callers of generate decide about length, sampling and output, and this check decides itself
_OWN = {
    **{"max_new_tokens": STEPS, "min_new_tokens": STEPS, "do_sample": False, "num_beams": 1, "use_cache": True},
    **{"temperature": None, "top_p": None, "top_k": None, "return_dict_in_generate": True, "output_logits": True},
}
_DROPPED = ("max_length", "min_length", "stopping_criteria", "streamer", "logits_processor", "generation_config")


def check_generation(
    engine: Engine,
    generate: Callable[..., Any],
    inputs: Mapping[str, Any],
    sets: Sequence[HeadSet],
    condition: Condition,
    regions: Mapping[str, Region],
    image_sizes: Sequence[tuple[int, int]],
) -> None:
    """Generate a few tokens under the condition, in both ways, and compare attention and logits of both.

    Args:
        generate: the model's own.
        inputs: what it is called with. A single prompt is repeated, one row per set that has yet to be proved; a batch
            runs under the first of them.

    Raises:
        HarnessHeadsError: if the logits differ, or the intervention did not act.
    """
    missing = engine.ledger.missing("generation", [one for one in sets if len(one)], condition)
    if not missing:
        return
    arguments = {name: value for name, value in inputs.items() if name not in _DROPPED}
    if inputs["input_ids"].shape[0] == 1:
        arguments = {n: torch.cat([v] * len(missing)) if isinstance(v, Tensor) else v for n, v in arguments.items()}
    else:
        missing = missing[:1]
    arguments |= _OWN
    shared: HeadSet | list[HeadSet] = missing[0] if len(missing) == 1 else missing
    length = inputs["input_ids"].shape[1]
    findings = Findings(engine.kernel)

    def around(watch: Watch) -> Handler:
        return Beside(watch, lambda: watch.overwrite.targets, findings)

    with engine.generating(shared, condition, regions=regions, image_sizes=image_sizes, around=around) as watch:
        made = generate(**arguments)
    # heads as they were asked for, not as the context understood them
    asked = missing if len(missing) > 1 else missing * len(watch.overwrite.targets)
    rows = [
        DenseRow(frozenset(one.heads), target.action)
        for one, target in zip(asked, watch.overwrite.targets, strict=True)
    ]
    forced = LogitsProcessorList([_Forced(made.sequences[:, length:])])

    def reference(rows: Sequence[DenseRow]) -> Tensor:
        with installed(engine.model, engine.family), handling(Dense(rows)):
            return _logprobs(generate(**arguments, logits_processor=forced))

    clean = reference([DenseRow()])
    host = _logprobs(generate(**arguments, logits_processor=forced))
    noise = largest_gap(host, clean)
    name = f"{condition.name} (generated)"
    shown = compared(condition, name, _logprobs(made), reference(rows), clean, engine.dtype, noise)
    local = [findings.of(target.heads, target.action) for target in watch.overwrite.targets if target.action]
    shown = replace(
        shown,
        local_gap=max(gap for gap, _ in local),
        local_effect=min(effect for _, effect in local),
        local_tolerance=local_tolerance(engine.dtype, engine.kernel, condition),
    )
    engine.ledger.enter("generation", missing, condition, shown)


class _Forced(LogitsProcessor):  # type: ignore[misc]
    """Makes generation choose given tokens (B, steps), whatever the logits say."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens
        self.step = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        chosen = self.tokens[:, self.step % self.tokens.shape[1]]
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter(1, chosen[:, None], 0.0)


def _logprobs(made: Any) -> Tensor:
    """(steps, B, V), float64."""
    logits: Tensor = torch.stack(made.logits).double()
    return logits.log_softmax(-1)
