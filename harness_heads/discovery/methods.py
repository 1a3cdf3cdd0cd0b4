"""Named head-scoring methods as instances of paper B's unified score, and the 2^3 variants.

Eq. 1 (reconstruction from its Table 2 and Figure 2): a sample's score of a head is the mean over query tokens Q_s of
Phi(attention row; region), and samples are combined by Omega. The summary of the paper speaks of "23 candidate scoring
variants"; three two-way choices give 2^3 = 8, so that a lost superscript is the likely reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from harness_heads.discovery.entropy import localization_hits
from harness_heads.discovery.measure import ENTROPY
from harness_heads.discovery.score import Measured, Scores, omega_freq, omega_mean
from harness_heads.errors import HarnessHeadsError, did_you_mean

CALIBRATED = "calibrated"
"""Measure of QRHead: region attention minus that of the same prompt with "N/A" for the phrase, weak tokens dropped."""

QuerySet = Literal["in", "out"]
Phi = Literal["sum", "mean", "argmax", "argmax_image", "share", "calibrated", "entropy"]
Omega = Literal["avg", "freq"]


@dataclass(frozen=True)
class Method:
    """One way to score heads.

    Attributes:
        name: what users type.
        title: what the literature calls it.
        source: which rows are read (see :data:`~harness_heads.discovery.measure.SOURCE_WORDS`).
        query_set: the set that those rows stand for, Q_in or Q_out.
        phi: how keys are aggregated (``argmax`` among all keys, as retrieval heads do); ``entropy`` for the one method
            that does without.
        omega: how samples are aggregated.
        input_source: what it was made for.
        causal: whether its paper showed a causal effect; ``None`` where that is not known here.
        reference: where it is from.
        details: what the unified form hides.
        out_row: row of an output token, ``predict`` or ``consume``.
        region_rule: box-to-token rule.
        frequency: top-K per sample of Omega = freq; ``None`` takes the set's own size (the masking budget).
        reconstructed: the formula is our reading of a text that does not give it.
        listed: whether paper B's tables list it.
        corpus: corpus of its own, native use; strip corpora are named with their query (``cm-ord``).
        options: further named settings, for provenance.
    """

    name: str
    title: str
    source: str
    query_set: QuerySet
    phi: Phi
    omega: Omega
    input_source: str
    causal: bool | None
    reference: str
    details: str
    out_row: str = "predict"
    region_rule: str = "centre"
    frequency: int | None = None
    reconstructed: bool = False
    listed: bool = False
    corpus: str = "refcoco"
    options: Mapping[str, float | str] = field(default_factory=dict, hash=False)

    @property
    def measure(self) -> str:
        """The measure that it reads."""
        return self.phi

    def per_sample(self, measured: Measured) -> Scores:
        """Score of every sample; float64 (N, L, H)."""
        if self.phi == "entropy":
            mass, entropy = measured.of(self.source, "image"), measured.of(self.source, ENTROPY)
            lowest = self.frequency or 10
            return np.stack([localization_hits(m, e, lowest) for m, e in zip(mass, entropy, strict=True)])
        return measured.of(self.source, self.measure)

    def score(self, measured: Measured, k: int) -> Scores:
        """Score of every head; (L, H).

        Args:
            k: size of the set that is wanted, the default K of frequency aggregation.
        """
        per_sample = self.per_sample(measured)
        if self.phi == "entropy" or self.omega == "avg":  # a mean of hits is their frequency
            return omega_mean(per_sample)
        return omega_freq(per_sample, self.frequency or k)


METHODS: Mapping[str, Method] = {
    m.name: m
    for m in (
        Method(
            "gaze",
            "Gaze heads",
            "last",
            "in",
            "sum",
            "avg",
            "Comic strips",
            True,
            "Gandikota and Bau, Gaze Heads (2026), public code",
            "ordinal query; last prompt row; raw attention mass on the panel; no normalisation; ties by (layer, head)",
            corpus="cm-ord",
        ),
        Method(
            "retrieval",
            "Retrieval Heads",
            "out",
            "out",
            "argmax",
            "avg",
            "Text",
            True,
            "arXiv:2404.15574, public code",
            "strongest of all keys in the evidence; the copy condition (same token id) cannot hold for image keys and "
            "is dropped; there, only answers with ROUGE-1 recall > 0.5 count and a head needs a score above 0.1",
            listed=True,
            options={"threshold": 0.1},
        ),
        Method(
            "qrhead",
            "QRHead",
            "turn",
            "in",
            "calibrated",
            "avg",
            "Text",
            True,
            "QRHead, public code",
            "rows from the question to the end of the prompt; attention under the null query N/A is subtracted; region "
            "tokens below mean - 2 SD are dropped",
            listed=True,
            corpus="co-ref",
        ),
        Method(
            "ocr",
            "OCR Heads",
            "out",
            "out",
            "argmax",
            "avg",
            "Visual document",
            True,
            "OCR Heads, as later papers describe it",
            "a patch is evidence when more than a tenth of it overlaps the answer's box; a head counts with a score "
            "above 0.1 in at least 10 % of samples and a mean above 0.1",
            region_rule="overlap",
            listed=True,
            options={"threshold": 0.1, "share_of_samples": 0.1},
        ),
        Method(
            "vera",
            "VERA",
            "first",
            "out",
            "share",
            "avg",
            "Visual document",
            True,
            "VERA, public code",
            "row that predicts the first output token (= last prompt row); evidence mass over image mass + 1e-9, which "
            "paper B's table does not show; top 5 heads are masked there",
            listed=True,
        ),
        Method(
            "localization",
            "Loc. Heads",
            "last",
            "in",
            "entropy",
            "freq",
            "General image",
            False,
            "arXiv:2503.06287, public code",
            "image mass above the elbow of the sorted masses (the value; the public code cuts by head index), "
            "then the 10 heads of lowest spatial entropy of each sample; score = selection frequency",
            frequency=10,
            listed=True,
        ),
        Method(
            "multimodal-retrieval",
            "Multimodal retrieval heads",
            "in",
            "in",
            "calibrated",
            "avg",
            "Long documents with images",
            True,
            "arXiv:2605.27243 (abstract)",
            "question tokens to evidence with a signed, calibrated score; reported with the share of heads that hold "
            "half of the positive score mass",
            reconstructed=True,
            corpus="co-ref",
        ),
        Method(
            "vrh",
            "VRH",
            "out",
            "out",
            "sum",
            "avg",
            "General image",
            True,
            "arXiv:2608.27417",
            "output tokens of the predicted box, sum over the referent's tokens, mean over 200 samples; top 20",
            listed=True,
        ),
    )
}
"""The named methods."""

VARIANTS: Mapping[str, Method] = {
    f"{q}-{phi}-{omega}": Method(
        f"{q}-{phi}-{omega}",
        f"Q_{q}, Phi_{phi}, Omega_{omega}",
        q,
        q,
        phi,
        omega,
        "General image",
        None,
        "arXiv:2608.27417, section 3.2",
        "one of the 2^3 variants of the unified score",
        reconstructed=True,
    )
    for q in ("out", "in")
    for phi in ("sum", "argmax")
    for omega in ("avg", "freq")
}
"""The 2^3 combinations of query set, key aggregation and sample aggregation."""

EXTRA: Mapping[str, Method] = {
    m.name: m
    for m in (
        Method(
            "both-sum-avg",
            "Q_in and Q_out, Phi_sum, Omega_avg",
            "both",
            "out",
            "sum",
            "avg",
            "General image",
            None,
            "arXiv:2608.27417, Table A8",
            "union of question and output tokens",
            reconstructed=True,
        ),
        Method(
            "one-sum-avg",
            "one random output token, Phi_sum, Omega_avg",
            "one",
            "out",
            "sum",
            "avg",
            "General image",
            None,
            "arXiv:2608.27417, Figure 8 (b)",
            "a single output token, drawn by the seed",
            reconstructed=True,
        ),
        Method(
            "last-sum-avg",
            "last prompt token, Phi_sum, Omega_avg",
            "last",
            "in",
            "sum",
            "avg",
            "General image",
            None,
            "representative of Q_in",
            "the last prompt row alone",
            reconstructed=True,
        ),
        Method(
            "first-sum-avg",
            "first output token, Phi_sum, Omega_avg",
            "first",
            "out",
            "sum",
            "avg",
            "General image",
            None,
            "representative of Q_out",
            "the first output token alone",
            reconstructed=True,
        ),
    )
}
"""Representatives of the query sets, and their union."""

ALL: Mapping[str, Method] = {**METHODS, **VARIANTS, **EXTRA}


NATIVE: Mapping[str, str] = {"ord-last": "gaze", "ref-qspan": "qrhead", "ref-out": "vrh"}
"""Paper A's native sets (Tables 2 and 21) and the methods that they stand for (reconstruction). A native set comes
from the method's own prompt, region and aggregation; a setting such as ``co-ref-out`` changes single factors of one
frame."""


def method(name: str) -> Method:
    """A method by name.

    Raises:
        HarnessHeadsError: unknown name, with the closest one.
    """
    if name not in ALL:
        raise HarnessHeadsError(f"unknown method {name!r}{did_you_mean(name, ALL)} (known: {', '.join(ALL)})")
    return ALL[name]
