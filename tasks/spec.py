"""TaskSpec: what one task YAML says, read strictly.

lmms-eval drops what it does not know or fails deep inside on it. Here every key is known or refused, all problems
of a file are listed at once, and the recipe's own options and columns are checked against what it declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness_heads.conditions import Condition, Op
from harness_heads.errors import HarnessHeadsError

HOST_KEYS = ("class", "tag", "task_alias", "generation_kwargs", "metadata")
"""Keys that lmms-eval reads itself; ours are below, everything else is an error."""
OUR_KEYS = (
    "task",
    "data",
    "recipe",
    "columns",
    "question",
    "instruction",
    "probe",
    "n",
    "seed",
    "options",
    "marks",
    "bad_images",
)
DATA_KEYS = ("path", "split", "revision", "files", "name", "rows", "get")
DEFAULT_OP: Mapping[str, Op] = {
    **dict.fromkeys(("grid_2x2", "strip", "same_image_overlay", "image_retrieval", "text_options"), "steer"),
    "grounding": "ablate",
}
"""Operation of a recipe where the YAML's ``probe.op`` is silent; ``mask`` for every other recipe."""
PROBE_KEYS = ("op", "rows", "beta", "phase", "keep_self", "numerics", "ablation")


@dataclass(frozen=True)
class DataRef:
    """Where the rows come from.

    Attributes:
        path: ``owner/name`` of the data set, or a path that starts with ``/`` or ``./`` (from where the run starts).
        split: split to read; ``None`` where the data has one only.
        revision: commit of the hub's repository, so that items stay the same.
        files: parquet, CSV or JSON files of the repository that hold the split (wildcards allowed).
        name: configuration of the data set; a folder of that name is looked up in a local copy.
        rows: read only the first so many rows, streamed; ``None`` reads the split.
        get: where to get what the hub does not have; such data need a local copy.
    """

    path: str
    split: str | None = None
    revision: str | None = None
    files: tuple[str, ...] = ()
    name: str | None = None
    rows: int | None = None
    get: str | None = None

    @property
    def label(self) -> str:
        """``owner/name@revision:split`` for messages and item ids."""
        parts = self.path + (f"/{self.name}" if self.name else "") + (f"@{self.revision}" if self.revision else "")
        return f"{parts}:{self.split}" if self.split else parts


@dataclass(frozen=True)
class TaskSpec:
    """One task.

    Attributes:
        task: name after ``--tasks``.
        recipe: name of the recipe that builds the items.
        data: the rows.
        columns: role (``image``, ``label``, ...) to column of the data.
        n: items planned.
        seed: seed of every draw.
        question: the question, or a template of it; ``""`` where the rows bring their own.
        instruction: appended to every prompt on a line of its own.
        probe: fields of :class:`Condition` that differ from the recipe's.
        options: the recipe's options, defaults not filled in.
        marks: facts a reader of results must know (``reconstructed``, ``ours``).
        bad_images: ``fail`` on a row whose image cannot be used, or ``skip`` and count it.
    """

    task: str
    recipe: str
    data: DataRef
    columns: Mapping[str, str]
    n: int
    seed: int
    question: str = ""
    instruction: str = ""
    probe: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    bad_images: str = "fail"

    def condition(self, op: str, keys: str, beta: float | str | None = None) -> Condition:
        """The recipe's condition with the YAML's ``probe`` fields laid over it."""
        fields_: dict[str, Any] = {"op": op, "keys": keys, **self.probe}
        rows = fields_.get("rows", "all")
        fields_["rows"] = tuple(rows.split("+")) if isinstance(rows, str) else tuple(rows)
        if fields_["op"] == "steer":
            fields_.setdefault("beta", beta if beta is not None else "hard")
        if fields_["op"] == "ablate":
            fields_["keys"] = ""
        return Condition(**fields_)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value for lmms-eval's results file and cache fingerprint."""
        return {
            **{k: v for k, v in vars(self).items() if k not in ("data", "marks")},
            "columns": dict(self.columns),
            "probe": dict(self.probe),
            "options": dict(self.options),
            "data": {k: v for k, v in vars(self.data).items() if v not in (None, ())},
            "marks": list(self.marks),
        }


def spec_from_config(config: Mapping[str, Any]) -> TaskSpec:
    """Read a task YAML's mapping.

    Raises:
        HarnessHeadsError: listing every problem of the file in one line.
    """
    from harness_heads.tasks.spec_problems import spec_problems

    problems = spec_problems(config)
    task = config.get("task", "task YAML")
    if problems:
        raise HarnessHeadsError(f"{task}: " + "; ".join(problems))
    data = dict(config["data"])
    files = data.pop("files", ())
    marks = config.get("marks", ())
    return TaskSpec(
        config["task"],
        config["recipe"],
        DataRef(**data, files=(files,) if isinstance(files, str) else tuple(files)),
        dict(config.get("columns", {})),
        config["n"],
        config["seed"],
        config.get("question", ""),
        config.get("instruction", ""),
        dict(config.get("probe", {})),
        dict(config.get("options", {})),
        (marks,) if isinstance(marks, str) else tuple(marks),
        config.get("bad_images", "fail"),
    )
