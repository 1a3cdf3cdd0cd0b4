"""The design space of paper A: settings by name, the passes that yield them, and the open points as named options.

A setting is corpus x query x attention source, ``co-ref-qsp``. Sources of one (corpus, query) pair are read from the
same forward pass, so that the paper's twelve settings cost four passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from harness_heads.errors import HarnessHeadsError, did_you_mean

CORPORA: Mapping[str, str] = {"cm": "comics", "co": "coco", "dg": "digits", "us": "user"}
QUERIES: Mapping[str, str] = {"ord": "ordinal", "ref": "referring"}
SOURCES: Mapping[str, str] = {
    "last": "last prompt token",
    "qsp": "query-span tokens",
    "out": "generated answer tokens",
}


class Setting(NamedTuple):
    """Corpus, query and attention source by their short names."""

    corpus: str
    query: str
    source: str

    @property
    def name(self) -> str:
        """``co-ref-qsp``."""
        return "-".join(self)

    @property
    def words(self) -> str:
        """The setting in words."""
        return f"{CORPORA[self.corpus]} corpus, {QUERIES[self.query]} query, {SOURCES[self.source]}"


class Pass(NamedTuple):
    """One run over a corpus with one query; it yields every source."""

    corpus: str
    query: str


def parse_setting(name: str) -> Setting:
    """Read ``co-ref-qsp``.

    Raises:
        HarnessHeadsError: unknown name, with the closest one.
    """
    parts = name.split("-")
    if len(parts) == 3 and parts[0] in CORPORA and parts[1] in QUERIES and parts[2] in SOURCES:
        return Setting(*parts)
    known = [s.name for s in (*paper_settings(), *corpus_settings("dg"))]
    raise HarnessHeadsError(
        f"unknown setting {name!r}{did_you_mean(name, known)} (corpus {'|'.join(CORPORA)} - "
        f"query {'|'.join(QUERIES)} - source {'|'.join(SOURCES)})"
    )


def corpus_settings(*corpora: str) -> tuple[Setting, ...]:
    """All queries x sources of the corpora, in that order."""
    return tuple(Setting(c, q, s) for c in corpora for q in QUERIES for s in SOURCES)


def paper_settings() -> tuple[Setting, ...]:
    """The twelve of paper A (Figure 1): two corpora, two queries, three sources."""
    return corpus_settings("cm", "co")


def passes(settings: Iterable[Setting]) -> dict[Pass, list[Setting]]:
    """Which pass yields which settings, in first-named order."""
    out: dict[Pass, list[Setting]] = {}
    for setting in settings:
        yielded = out.setdefault(Pass(setting.corpus, setting.query), [])
        if setting not in yielded:
            yielded.append(setting)
    return out


@dataclass(frozen=True)
class Options:
    """What the papers' texts leave open. The values stand in every head set's provenance.

    Attributes are documented, with the reason of each default, in :data:`OPTION_HELP`.
    """

    span: str = "phrase"
    widen: bool = False
    out_row: str = "consume"
    output: str = "greedy"
    max_new_tokens: int = 32
    region_norm: str = "sum"
    region_rule: str = "centre"
    argmax_keys: str = "all"

    def __post_init__(self) -> None:
        for name, allowed in OPTION_VALUES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise HarnessHeadsError(
                    f"option {name}={value!r} is unknown{did_you_mean(str(value), allowed)} "
                    f"(known: {', '.join(allowed)})"
                )
        if self.max_new_tokens < 1:
            raise HarnessHeadsError(f"option max_new_tokens={self.max_new_tokens}: at least one output token is needed")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON value."""
        return asdict(self)


OPTION_VALUES: Mapping[str, tuple[str, ...]] = {
    "span": ("phrase", "question"),
    "out_row": ("predict", "consume"),
    "output": ("greedy", "forced"),
    "region_norm": ("sum", "mean"),
    "region_rule": ("centre", "overlap"),
    "argmax_keys": ("all", "image"),
}

OPTION_HELP: Mapping[str, str] = {
    "span": "query span: the phrase that singles out the region, or the whole question. Default phrase: rows of the "
    "template's constant words carry no reference",
    "widen": "take the whole token where the span's border lies inside one. Default off: an error says so",
    "out_row": "row of an output token: the one that predicts it, or the one that reads it. Default consume: the first "
    "predicting row is the last prompt row, so that `predict` would mix the sources last and out",
    "output": "output tokens: what the model generates greedily, or the corpus' own answer (teacher-forced). Default "
    "greedy: paper A reads generated answer tokens",
    "max_new_tokens": "longest generated answer",
    "region_norm": "attention over the region summed, or divided by its tokens. Default sum: the gaze-heads code",
    "region_rule": "a token is in the region if its cell's centre is, or if more than a tenth overlaps. Default: "
    "centre, as in the gaze-heads code",
    "argmax_keys": "the strongest key is sought among all keys, or image keys. Default all: as retrieval heads do",
}
"""One line per option: its meaning and why the default is what it is."""

assert set(OPTION_HELP) == {f.name for f in fields(Options)}
