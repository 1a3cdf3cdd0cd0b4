"""Paper B's Tables 1 and 2, rendered from the registry of methods."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from harness_heads.discovery.methods import METHODS, Method

_PHI = {
    "sum": "Φ_sum",
    "mean": "Φ_sum",
    "argmax": "Φ_argmax",
    "argmax_image": "Φ_argmax",
    "share": "Φ_sum",
    "calibrated": "Φ_sum",
    "entropy": "N/A",
}
_CAUSAL = {True: "✓", False: "✗", None: "?"}


def listed() -> tuple[Method, ...]:
    """The methods of paper B's tables, in its order."""
    return tuple(m for m in METHODS.values() if m.listed)


def table_1(methods: Sequence[Method] | None = None, style: str = "github") -> str:
    """Input source and causality of each method (paper B, Table 1)."""
    chosen = listed() if methods is None else methods
    rows = [
        ["Input Source", *(m.input_source for m in chosen)],
        ["Causality", *(_CAUSAL[m.causal] for m in chosen)],
    ]
    return tabulate(rows, headers=["", *(m.title for m in chosen)], tablefmt=style)


def table_2(methods: Sequence[Method] | None = None, style: str = "github") -> str:
    """Query set, key aggregation and sample aggregation of each method (paper B, Table 2, which leaves VRH out)."""
    chosen = [m for m in listed() if m.name != "vrh"] if methods is None else methods
    rows = [
        ["Query Token Set", *(f"Q_{m.query_set}" for m in chosen)],
        ["Key Aggregation", *(_PHI[m.phi] for m in chosen)],
        ["Sample Aggregation", *(f"Ω_{m.omega}" for m in chosen)],
    ]
    return tabulate(rows, headers=["", *(m.title for m in chosen)], tablefmt=style)


def details(style: str = "github") -> str:
    """What the unified form hides, one row a method."""
    rows = [
        [m.name, m.title, m.details + (" (reconstructed)" if m.reconstructed else ""), m.reference]
        for m in METHODS.values()
    ]
    return tabulate(rows, headers=["name", "method", "details", "source"], tablefmt=style)
