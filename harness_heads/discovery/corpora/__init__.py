"""Corpora by name: small declared recipes that turn data sets into samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness_heads.discovery.design import CORPORA, QUERIES
from harness_heads.discovery.samples import Corpus
from harness_heads.errors import HarnessHeadsError, did_you_mean

STRIP_CORPORA: Mapping[str, str] = CORPORA
"""Short names of the corpora that settings are made of."""

BOX_CORPORA: tuple[str, ...] = ("digits", "refcoco", "refcoco-plus", "refcocog", "toloka", "refspatial", "user")
"""Corpora of named methods: one picture, one phrase, one box."""


def strip_corpus(short: str, seed: int, data: Path | None = None) -> Corpus:
    """The corpus of a setting by its short name (``cm``, ``co``, ``dg``, ``us``).

    Args:
        data: local copy of the data set, or the user's own folder or YAML file.
    """
    if short == "dg":
        from harness_heads.discovery.corpora.digits import Digits

        return Digits(seed)
    if short == "cm":
        from harness_heads.discovery.corpora.comics import Comics

        return Comics(data)
    if short == "co":
        from harness_heads.discovery.corpora.coco import CocoStrips

        return CocoStrips(seed, data)
    if short == "us":
        from harness_heads.discovery.corpora.user import open_user

        return open_user(data)
    raise HarnessHeadsError(f"unknown corpus {short!r}{did_you_mean(short, CORPORA)} (known: {', '.join(CORPORA)})")


def method_corpus(name: str, seed: int, grounding_prompt: str, data: Path | None = None) -> tuple[Corpus, str]:
    """The corpus of a named method and the query that it is asked by.

    Args:
        name: a box corpus (asked for boxes, ``loc``), or a strip corpus with its query: ``cm-ord``, ``co-ref``.
        grounding_prompt: how the model family is asked for a box; ``{expression}`` is filled in.
        data: local copy of the data set, or the user's own folder or YAML file.
    """
    short, dash, query = name.partition("-")
    if dash and short in CORPORA and query in QUERIES:
        return strip_corpus(short, seed, data), query
    if name not in BOX_CORPORA:
        known = (*BOX_CORPORA, *(f"{c}-{q}" for c in CORPORA for q in QUERIES))
        raise HarnessHeadsError(f"unknown corpus {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})")
    return box_corpus(name, seed, grounding_prompt, data), "loc"


def box_corpus(name: str, seed: int, grounding_prompt: str, data: Path | None = None) -> Corpus:
    """A corpus of pictures, phrases and boxes; arguments as in :func:`method_corpus`."""
    if name not in BOX_CORPORA:
        raise HarnessHeadsError(
            f"unknown corpus {name!r}{did_you_mean(name, BOX_CORPORA)} (known: {', '.join(BOX_CORPORA)})"
        )
    if name == "digits":
        from harness_heads.discovery.corpora.digits import Digits

        return Digits(seed)
    if not grounding_prompt and name != "user":
        raise HarnessHeadsError("this model family has no documented grounding prompt; use --corpus user with your own")
    if name == "user":
        from harness_heads.discovery.corpora.user import open_user

        return open_user(data, grounding_prompt)
    from harness_heads.discovery.corpora.grounding import Grounding

    return Grounding(name, seed, grounding_prompt, data)
