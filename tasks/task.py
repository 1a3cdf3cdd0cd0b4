"""HeadTask: the lmms-eval class behind every task YAML of this package.

One document is one item; each arm of the item is one request. The probe travels in ``Instance.metadata["probe"]``, the
ItemRecord comes out as the metric ``record``. The rows of lmms-eval's table are the entries of one summary of all
records; their own per-item payload only points at the record, so that nothing is written twice.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

from lmms_eval.api.instance import Instance
from lmms_eval.api.task import ConfigurableMessagesTask
from loguru import logger
from PIL import Image

from harness_heads.errors import HarnessHeadsError
from harness_heads.probes import ItemRecord, item_record_from_dict
from harness_heads.regions import image_sha
from harness_heads.tasks.data import open_data
from harness_heads.tasks.items import Doc, Documents, to_docs
from harness_heads.tasks.pictures import paint
from harness_heads.tasks.recipe import within_reach
from harness_heads.tasks.recipes import RECIPES
from harness_heads.tasks.records import Shown, item_record
from harness_heads.tasks.spec import HOST_KEYS, spec_from_config
from harness_heads.tasks.summaries import summary_of

RECORD = "record"
POINTER = {"see": RECORD}  # a dict, so that lmms-eval prints no standard error of its own beside our rows


class HeadTask(ConfigurableMessagesTask):  # type: ignore[misc]  # lmms-eval ships no types
    """A task built by a recipe; constructed by lmms-eval as ``HeadTask(config=...)``.

    Raises:
        HarnessHeadsError: if the YAML or its data is unsound, in one line.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.spec = spec_from_config(config)
        self.recipe = RECIPES[self.spec.recipe]
        self._lock = Lock()
        self._rows: tuple[str, ...] | None = None
        self._summary: Mapping[str, float | str] | None = None
        self._shown: dict[tuple[str, str], Shown] = {}
        host = {key: config[key] for key in HOST_KEYS if key in config and key != "class"}
        greedy = {
            "do_sample": False,
            "temperature": 0,
            "max_new_tokens": self.recipe.max_new_tokens,
            "until": ["<|im_end|>"],
        }
        host["generation_kwargs"] = {**greedy, **host.get("generation_kwargs", {})}
        host["metadata"] = {"version": self.recipe.version, **host.get("metadata", {})}
        super().__init__(
            config={
                "task": self.spec.task,
                "test_split": self.spec.data.split or "all",
                "output_type": "generate_until",
                "reasoning_tags": "none",  # a ProbeResult is JSON and may quote a think block
                **host,
            }
        )

    def download(self, dataset_kwargs: Any = None) -> None:
        """Open the data and build the documents; called once by the host's constructor."""
        self.source = open_data(self.spec.data, self.spec.task)
        self.source.decode_first = self.spec.bad_images == "skip"
        within_reach(self.spec, self.source)
        docs = to_docs(self.recipe.build(self.spec, self.source), self.spec, self.recipe.version)
        self.dataset = {self.spec.data.split or "all": Documents(docs)}
        self.dataset_no_image = self.dataset  # documents hold no images
        if self.source.left_out:
            logger.warning(f"{self.spec.task}: {self.source.left_out} bad images left out (bad_images: skip)")

    def dump_config(self) -> dict[str, Any]:
        """The host's configuration and ours: results file and response cache see what the YAML said."""
        return {**super().dump_config(), "harness_heads": self.spec.to_dict()}

    def _prepare_metric_and_aggregation(self) -> None:
        """Metrics come from the records; there is no metric list to prepare."""

    # --- prompts ---------------------------------------------------------------------------------------------

    def doc_to_text(self, doc: Doc) -> str:
        """Text of the main arm."""
        return str(_main(doc)["text"])

    def doc_to_target(self, doc: Doc) -> str:
        """The right letter, or the recipe's gold answer."""
        if doc["correct"] is not None:
            return str(doc["letters"][doc["correct"]])
        return str(doc["extra"].get("answer", doc["extra"].get("gold", "")))

    def doc_to_visual(self, doc: Doc, arm: str | None = None) -> list[Image.Image]:
        """Paint the images of one arm (the main arm by default)."""
        described = doc["arms"][arm] if arm else _main(doc)
        try:
            images = [paint(picture, self.source) for picture in described["pictures"]]
        except HarnessHeadsError as error:
            raise HarnessHeadsError(
                f"{self.spec.task}, item {doc['item']} (document {doc['index']}): {error}"
            ) from error
        shown = Shown([image_sha(image) for image in images], images[0].size)
        self._shown[doc["item"], described["probe"]["arm"]] = shown
        return images

    def arm_messages(self, doc: Doc, *, arm: str) -> list[dict[str, Any]]:
        """Chat messages of one arm."""
        turn: list[dict[str, Any]] = self._build_user_turn(self.doc_to_visual(doc, arm), doc["arms"][arm]["text"])
        return turn

    def doc_to_messages(self, doc: Doc, **_: Any) -> list[dict[str, Any]]:
        """Chat messages of the main arm."""
        return self.arm_messages(doc, arm=_main(doc)["probe"]["arm"])

    def build_all_requests(self, *, limit: int | None = None, **kwargs: Any) -> None:
        """Warn where a run is cut short, then build.

        lmms-eval's request cache is left out: it keys on the task's name alone and stores requests without messages.
        """
        kwargs["cache_requests"] = False
        if limit and limit < self.spec.n:
            logger.warning(
                f"{self.spec.task}: --limit {limit} is below the {self.spec.n} items planned; flagged in results"
            )
        super().build_all_requests(limit=limit, **kwargs)

    def construct_requests(self, doc_id: int, ctx: str, **kwargs: Any) -> list[Instance]:
        """One request per arm; item and arm stand in the context string, which response caches hash."""
        metadata = kwargs["metadata"]
        doc = self.dataset[metadata["split"]][doc_id]
        requests = []
        for idx, (name, arm) in enumerate(doc["arms"].items()):
            # an answer in words without conditions of its own is generated by the host, under whatever the class does
            probed = arm["probe"]["ask"] != "generate" or arm["probe"]["conditions"]
            arguments = (
                f"[{doc['item']} {name}]\n{arm['text']}",
                partial(self.arm_messages, arm=name),
                copy.deepcopy(self.config.generation_kwargs),
                doc_id,
                self.config.task,
                metadata["split"],
            )
            requests.append(
                Instance(
                    request_type="generate_until",
                    arguments=arguments,
                    idx=idx,
                    metadata={**metadata, **({"probe": copy.deepcopy(arm["probe"])} if probed else {})},
                )
            )
        return requests

    # --- results ---------------------------------------------------------------------------------------------

    def process_results(self, doc: Doc, results: Sequence[str], full_docs: Any = None) -> dict[str, Any]:
        """The item's record, and a pointer for every row of the table. Pure; called from several threads."""
        record = self._record(doc, results)
        return {RECORD: record.to_dict(), **dict.fromkeys(self._table_rows(), POINTER)}

    def _record(self, doc: Doc, answers: Sequence[str]) -> ItemRecord:
        for name in doc["arms"]:
            if (doc["item"], name) not in self._shown:
                self.doc_to_visual(doc, name)  # answered from a cache or a journal: nothing was painted in this run
        shown = {name: self._shown[doc["item"], name] for name in doc["arms"]}
        return item_record(doc, [str(a) for a in answers], self.spec, self.recipe.version, shown)

    def _table_rows(self) -> tuple[str, ...]:
        """Names of the summary's entries, found once from this rank's own answers.

        Which rows there are depends on the head sets and conditions of the run, which the task learns from the answers
        alone; every rank answers for the same sets and conditions, hence finds the same names.
        """
        with self._lock:
            if self._rows is None:
                by_doc: dict[int, list[Instance]] = {}
                for request in self.instances:
                    if not request.metadata.get("__padding_only__") and request.resps:
                        by_doc.setdefault(request.doc_id, []).append(request)
                docs = self.dataset[self.config.test_split]
                records = [
                    self._record(docs[i], [r.resps[0] for r in sorted(requests, key=lambda r: r.idx)])
                    for i, requests in by_doc.items()
                ]
                self._rows = tuple(summary_of(records))
            return self._rows

    def aggregation(self) -> dict[str, Any]:
        """``record`` is aggregated first and leaves the summary that the other rows are read from."""
        return {RECORD: self._summarise, **{name: partial(self._row, name) for name in self._rows or ()}}

    def _summarise(self, payloads: Sequence[Mapping[str, Any]]) -> str:
        """Value of the row ``record``: items answered of items planned."""
        records = sorted((item_record_from_dict(p) for p in payloads), key=lambda r: r.item)
        self._summary = summary_of(records)
        count = f"{len(records)} of {self.spec.n} items"
        if len(records) < self.spec.n:
            count += " (below plan)"
        return f"{count}; {self.source.left_out} bad images left out" if self.source.left_out else count

    def _row(self, name: str, payloads: Sequence[Any]) -> float | str:
        summary = self._summary or {}
        return summary.get(name, "N/A")

    def higher_is_better(self) -> dict[str, Any]:
        """No arrow: what is better depends on the claim."""
        return {}


def _main(doc: Doc) -> dict[str, Any]:
    arm: dict[str, Any] = next(iter(doc["arms"].values()))
    return arm
