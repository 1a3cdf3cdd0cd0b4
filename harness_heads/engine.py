"""Many head sets and conditions on one prompt, at least cost.

The host's own forward runs once per prompt, watched; the head sets are then run together, the empty set among them as
the baseline. See docs/interventions.md for the semantics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness_heads.attention import Handler, kernel_name, refuse_unsupported
from harness_heads.conditions import Condition
from harness_heads.engine_dose import doses
from harness_heads.engine_generate import Watch, acting
from harness_heads.engine_options import option_logprobs, option_tokens, total_mass, with_answer_prefix, without_padding
from harness_heads.engine_prompts import Prompts
from harness_heads.engine_run import Mode, Runner, unwatched
from harness_heads.errors import HarnessHeadsError
from harness_heads.families import family_of
from harness_heads.heads import Head, HeadSet
from harness_heads.interventions import Action, resolve
from harness_heads.layouts import PromptLayout
from harness_heads.regions import Region
from harness_heads.verify import SelfCheck
from harness_heads.verify_generation import check_generation
from harness_heads.verify_proof import Ledger, Proof

NONE = "none"


@dataclass(frozen=True)
class Answers:
    """What one prompt answered.

    Attributes:
        logprobs: ``[condition][set key][option]``, natural log over the whole vocabulary, surface forms summed.
        dose: ``[condition][set key] -> {"before", "after"}``: mean over the set's heads and the prompt's rows in scope
            of the attention mass on the condition's keys, clean and intervened. Not given for the empty set.
        option_mass: ``[condition][set key]`` probability of all options together.
        numerics: ``dtype``, ``kernel``, ``mode``, and ``baseline_gap``: the largest difference of option
            log-probabilities between the empty set and the host's own forward (in replay, with the products of its
            last layer made for the final row alone).
    """

    logprobs: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    dose: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    option_mass: dict[str, dict[str, float]] = field(default_factory=dict)
    numerics: dict[str, Any] = field(default_factory=dict)


class Engine:
    """Runs conditions on head sets of one loaded model.

    Args:
        model: a transformers vision-language model of a supported family, in evaluation mode.
        processor: the host's processor or tokenizer.
        verify: prove every kind of condition on the first prompt that names it, before it is scored.
        chunk: head sets run together; bounds memory. By default as many as make 1,280 rows on a CPU, 16,384 on a GPU.
        mode: ``batch`` runs all rows of every set; ``replay`` only rows that can differ; ``auto`` replays where the
            family allows it.
    """

    def __init__(
        self, model: Any, processor: Any, *, verify: bool = True, chunk: int | None = None, mode: Mode = "auto"
    ) -> None:
        if chunk is not None and chunk < 1:
            raise HarnessHeadsError(f"engine: chunk={chunk} runs no head set; give 1 or more")
        self.model: nn.Module = model
        self.processor = processor
        self.dtype: torch.dtype = model.dtype
        self.family = family_of(model)
        self.geometry = self.family.geometry(model)
        self.kernel = kernel_name(model, self.family)
        self.verify = verify
        self.ledger = Ledger(dtype=self.dtype)
        self.chunk = chunk or (32 if model.device.type != "cpu" else 8)  # sets that callers generate together
        self._runner = Runner(self.model, self.family, chunk, mode)
        refuse_unsupported(model, self.family)

    @property
    def proof(self) -> Proof | None:
        """What was proved on this model so far."""
        return self.ledger.proof

    def layout(self, inputs: Mapping[str, Any], image_sizes: Sequence[tuple[int, int]]) -> PromptLayout:
        """Layout of one prompt as the host's processor made it."""
        if inputs["input_ids"].shape[0] != 1:
            raise HarnessHeadsError(f"engine: one prompt at a time, got a batch of {inputs['input_ids'].shape[0]}")
        return self.family.layout(self.model.config, inputs, image_sizes, self.processor)

    def answer(
        self,
        inputs: Mapping[str, Any],
        sets: Sequence[HeadSet],
        *,
        keys: Sequence[str],
        conditions: Sequence[Condition],
        options: Sequence[str],
        regions: Mapping[str, Region] | None = None,
        image_sizes: Sequence[tuple[int, int]] = (),
    ) -> Answers:
        """Log-probabilities of ``options`` for every condition and set.

        Args:
            inputs: tensors of one prompt (batch 1, no padding needed) as the host's processor made them.
            sets: head sets; one of them is empty and is the baseline of every condition.
            keys: what to call each set in the answer.
            conditions: what is done; without any, the empty set alone is answered under the name ``none``.
            options: answer strings, each one token.
            regions: boxes that conditions may name, in pixels of the image as shown.
            image_sizes: width and height of every image as shown.

        Raises:
            HarnessHeadsError: if a condition could not act on this prompt, or moved no attention at all.
        """
        if len(keys) != len(sets):
            raise HarnessHeadsError(f"engine: {len(keys)} keys for {len(sets)} head sets; give one each")
        for what, names in (("key", keys), ("condition", [c.name for c in conditions]), ("option", options)):
            if twice := next((name for name, count in Counter(names).items() if count > 1), None):
                raise HarnessHeadsError(f"engine: {what} {twice!r} is given twice; one answer would hide the other")
        for heads in sets:
            for head in heads:
                self.geometry.check(head, heads.name)
        empty = [key for key, heads in zip(keys, sets, strict=True) if not len(heads)]
        if not empty:
            raise HarnessHeadsError("engine: no empty head set among the sets; it is the baseline")
        inputs = with_answer_prefix(self.family, self.processor, without_padding(inputs))
        layout = self.layout(inputs, image_sizes)
        actions = {c.name: resolve(c, layout, regions or {}) for c in conditions}
        for name, action in actions.items():
            if not bool(action.rows.any()):
                raise HarnessHeadsError(f"condition {name}: options are read off the prompt, no row is ever decoded")
        tokens = option_tokens(self.family, self.processor, options)
        check = SelfCheck.of(self, inputs, sets, actions) if self.verify and actions else None
        every = [one.heads for one in sets]
        clean = self._runner.record(inputs, every, list(actions.values()))
        host = option_logprobs(clean.logits[None], tokens)[0]
        answers = Answers()
        if not conditions:
            answers.logprobs[NONE] = {empty[0]: host}
            answers.option_mass[NONE] = {empty[0]: total_mass(host)}
            answers.numerics.update(self._numerics(0.0, "host"))
            return answers
        watch = check.findings.around(clean.record) if check else unwatched
        outcomes, way = self._runner.run(clean, every, actions, watch)
        gap = 0.0
        for number, name in enumerate(actions):
            logprobs = option_logprobs(outcomes[name].logits, tokens)
            answers.logprobs[name] = dict(zip(keys, logprobs, strict=True))
            answers.option_mass[name] = {key: total_mass(values) for key, values in answers.logprobs[name].items()}
            answers.dose[name] = doses(clean.record, sets, keys, list(actions.values()), number, outcomes[name])
            baseline = answers.logprobs[name][empty[0]]
            gap = max(gap, *(abs(baseline[option] - host[option]) for option in options), 0.0)
        answers.numerics.update(self._numerics(gap, way))
        if check:
            replayed = way == "replay"
            first_rows = {n: self._runner.first_row(clean, a) if replayed else 0 for n, a in actions.items()}
            check.hold(clean, outcomes, first_rows, [answers.dose[name][keys[i]] for i, name in check.wanted])
        return answers

    @contextmanager
    def generating(
        self,
        heads: HeadSet | Sequence[HeadSet],
        condition: Condition,
        *,
        regions: Mapping[str, Region] | None = None,
        image_sizes: Sequence[tuple[int, int]] = (),
        around: Callable[[Watch], Handler] = lambda watch: watch,
    ) -> Iterator[Watch]:
        """Context in which ``model.generate`` and ``model(...)`` run under the intervention.

        Works with a key/value cache and with batches padded on the left; row groups, image tokens and padding are found
        anew at every prefill. With an empty set the outputs are the host's own, bit for bit.

        Args:
            heads: one set for all rows of the batch, or one per row.
            regions, image_sizes: needed when the condition names a region; all rows must then hold one prompt.
            around: puts what looks on around the watch.

        Yields:
            A watch; after a prefill that holds the empty set beside others, its ``doses()`` say what those moved.

        Raises:
            HarnessHeadsError: when the context closes, if the intervention touched nothing in it.
        """
        sets = [heads] if isinstance(heads, HeadSet) else list(heads)
        for one in sets:
            for head in one:
                self.geometry.check(head, one.name)
        prompts = Prompts(
            self.model, self.family, self.processor, [s.heads for s in sets], condition, regions or {}, image_sizes
        )
        with acting(prompts, around) as watch:
            yield watch

    def prove_generation(
        self,
        generate: Callable[..., Any],
        inputs: Mapping[str, Any],
        sets: Sequence[HeadSet],
        condition: Condition,
        *,
        regions: Mapping[str, Region] | None = None,
        image_sizes: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Prove :meth:`generating` for a kind of condition, unless that is done or ``verify`` is off.

        Args:
            generate: the model's own ``generate``.
            inputs: what it will be called with.

        Raises:
            HarnessHeadsError: if text is not generated as the dense reference generates it.
        """
        if self.verify:
            check_generation(self, generate, inputs, sets, condition, regions or {}, image_sizes)

    def logprobs_under(self, inputs: Mapping[str, Any], heads: Sequence[Head], action: Action) -> Tensor:
        """Log-probabilities (V,) of the final row under an action, as :meth:`answer` computes them; float64."""
        sets = [(), tuple(heads)]
        clean = self._runner.record(inputs, sets, [action])
        outcome = self._runner.run(clean, sets, {"": action}, unwatched)[0][""]
        return outcome.logits[1].double().log_softmax(-1)

    def _numerics(self, gap: float, mode: str) -> dict[str, Any]:
        dtype = str(self.dtype).removeprefix("torch.")
        return {"dtype": dtype, "kernel": self.kernel, "baseline_gap": gap, "mode": mode}
