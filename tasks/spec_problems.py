"""Everything that is wrong with a task YAML's mapping, without looking at its data.

Every key holds a value of the kind that it must have; what no part of the task would read is a problem, not a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness_heads.errors import HarnessHeadsError, did_you_mean
from harness_heads.plain import is_number, shown
from harness_heads.settings import ACTS_UNDER
from harness_heads.tasks.recipe import Recipe
from harness_heads.tasks.spec import DATA_KEYS, DEFAULT_OP, HOST_KEYS, OUR_KEYS, PROBE_KEYS, DataRef, TaskSpec

MAX_ITEMS = 100_000
"""More items than any task of this kind has; a slip of the hand would build for hours."""
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*")
_FIELD = re.compile(r"\{(\w*)\}")


def spec_problems(config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong, one line each; empty when sound."""
    from harness_heads.tasks.recipes import RECIPES

    problems = _unknown("key", config, (*HOST_KEYS, *OUR_KEYS))
    for key in ("task", "recipe", "data", "n", "seed"):
        if key not in config:
            problems.append(f"key {key!r} is missing")
    problems += _kind_problems(config)
    problems += _data_problems(config["data"]) if "data" in config else []
    name, probe = config.get("recipe"), config.get("probe", {})
    if isinstance(probe, Mapping):
        problems += _unknown("probe key", probe, PROBE_KEYS) or _probe_problems(probe, name)
    if name is None:
        return problems
    if not isinstance(name, str) or name not in RECIPES:
        known = ", ".join(sorted(RECIPES))
        return [*problems, f"unknown recipe {shown(name)}{did_you_mean(str(name), RECIPES)} (known: {known})"]
    columns, options = config.get("columns", {}), config.get("options", {})
    if isinstance(columns, Mapping) and isinstance(options, Mapping):
        problems += _recipe_problems(RECIPES[name], columns, options, config)
    try:
        if not problems:
            RECIPES[name].check(options, config)
    except HarnessHeadsError as error:
        problems.append(str(error))
    return problems


def _kind_problems(config: Mapping[str, Any]) -> list[str]:
    """Values of our own keys, and of those of lmms-eval's that we hand on, that are of the wrong kind."""
    problems = []
    task = config.get("task", "t")
    if not isinstance(task, str) or not _NAME.fullmatch(task):
        problems.append(f"task: {shown(task)} is no name; write letters, digits and _ . - only")
    for key in ("question", "instruction", "task_alias"):
        if not isinstance(config.get(key, ""), str):
            problems.append(f"{key}: {shown(config[key])} is no text; write it in quotes")
    for key, low, high in (("n", 1, MAX_ITEMS), ("seed", 0, None)):
        value = config.get(key, low)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            problems.append(f"{key}: {shown(value)} is no whole number >= {low}")
        elif high is not None and value > high:
            problems.append(f"{key}: {shown(value)} is more than any task holds; write at most {high}")
    for key in ("columns", "probe", "options", "metadata", "generation_kwargs"):
        if not isinstance(config.get(key, {}), Mapping):
            problems.append(f"{key} is a mapping, not {shown(config[key])}")
    for key in ("marks", "tag"):
        if not _texts(config.get(key, ())):
            problems.append(f"{key}: {shown(config[key])} is neither a text nor a list of texts")
    generation = config.get("generation_kwargs", {})
    if isinstance(generation, Mapping):
        tokens = generation.get("max_new_tokens", 1)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            problems.append(f"generation_kwargs.max_new_tokens: {shown(tokens)} is no whole number >= 1")
        if not _texts(generation.get("until", ())):
            problems.append(
                f"generation_kwargs.until: {shown(generation['until'])} is neither a text nor a list of texts"
            )
    if config.get("bad_images", "fail") not in ("fail", "skip"):
        problems.append(f"bad_images: {shown(config['bad_images'])} is neither fail nor skip")
    return problems


def _data_problems(data: object) -> list[str]:
    if not isinstance(data, Mapping):
        return ["data is a mapping: {path: owner/name, split: ...}"]
    problems = _unknown("data key", data, DATA_KEYS)
    if not isinstance(data.get("path"), str) or not data["path"].strip():
        problems.append("data.path is missing: owner/name of the data set")
    for key in ("split", "revision", "name", "get"):
        if key in data and not isinstance(data[key], str):
            problems.append(f"data.{key}: {shown(data[key])} is no text; write it in quotes")
    if not _texts(data.get("files", ())):
        problems.append(f"data.files: {shown(data['files'])} is neither a text nor a list of texts")
    rows = data.get("rows", 1)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        problems.append(f"data.rows: {shown(rows)} is no whole number >= 1")
    return problems


def _probe_problems(probe: Mapping[str, Any], recipe: object) -> list[str]:
    kinds = {
        "rows": (_texts, "a row group, or a list of them"),
        "beta": (lambda v: is_number(v) or v == "hard", "a finite number or hard"),
        "keep_self": (lambda v: isinstance(v, bool), "yes or no"),
    }
    problems = []
    for key, value in probe.items():
        fits, wanted = kinds.get(key, (lambda v: isinstance(v, str), "a word"))
        if not fits(value):
            problems.append(f"probe.{key}: {shown(value)} is not {wanted}")
    if problems:
        return problems
    op = probe.get("op", DEFAULT_OP.get(str(recipe), "mask"))
    try:
        TaskSpec(
            "", "", DataRef(""), {}, 1, 0, probe={k: v for k, v in probe.items() if k not in ACTS_UNDER}
        ).condition(op, "image", probe.get("beta"))
    except HarnessHeadsError as error:
        return [f"probe: {error}"]
    idle = [key for key in probe if ACTS_UNDER.get(key, op) != op]
    if idle:
        return [f"probe.{key} does nothing under {op}, only {ACTS_UNDER[key]} reads it; leave it out" for key in idle]
    try:
        TaskSpec("", "", DataRef(""), {}, 1, 0, probe=probe).condition(op, "image")
    except HarnessHeadsError as error:
        return [f"probe: {error}"]
    return []


def _recipe_problems(
    recipe: Recipe, columns: Mapping[str, Any], options: Mapping[str, Any], config: Mapping[str, Any]
) -> list[str]:
    problems = _unknown("column role", columns, recipe.columns)
    problems += [f"columns.{role} is missing: {what}" for role, what in recipe.required.items() if role not in columns]
    for role, column in columns.items():
        if not isinstance(column, str) or not column.strip():
            problems.append(f"columns.{role}: {shown(column)} is no column's name; write it in quotes")
    problems += _unknown("option", options, recipe.options)
    for key, value in options.items():
        if key in recipe.options:
            problems += recipe.options[key].problems(key, value)
    problems += _template_problems("instruction", config.get("instruction", ""), ())
    for key, fields in recipe.fields.items():
        where, value = (key, config.get(key, "")) if key == "question" else (f"options.{key}", options.get(key, ""))
        problems += _template_problems(where, value, fields)
    return problems


def _template_problems(where: str, template: object, fields: Sequence[str]) -> list[str]:
    """Placeholders that nothing fills would reach the model as they stand; one left out asks something else."""
    if not isinstance(template, str) or not template:
        return []  # other rules say whether it may be empty
    found = _FIELD.findall(template)
    known = ", ".join(f"{{{field}}}" for field in fields) or "it takes none"
    problems = [
        f"{where}: unknown placeholder {{{name}}}{did_you_mean(name, fields)} (known: {known})"
        for name in dict.fromkeys(found)
        if name not in fields
    ]
    return problems or [f"{where}: write {{{field}}} where it belongs" for field in fields if field not in found]


def _texts(value: object) -> bool:
    """A text, or a list of texts."""
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(part, str) and part for part in value)
    )


def _unknown(what: str, given: Mapping[str, Any], known: Any) -> list[str]:
    names = list(known)
    return [f"unknown {what} {shown(key)}{did_you_mean(str(key), names)}" for key in given if key not in names]
