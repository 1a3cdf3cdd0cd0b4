"""The resampled numbers of a test: bootstrap intervals over items, over items and draws, and the rank p's stability.

Weights are drawn once per (items, draws) shape and shared by all tests of that shape, so that settings measured on the
same items are resampled together; a table of a dozen settings with 250 controls each is a few matrix products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from harness_heads.protocol import statistics as st
from harness_heads.protocol.arrays import Floats

RESAMPLES = 10_000
SEED = 20_260_101
"""Seed of every bootstrap of a report: the same evidence gives the same report."""


@dataclass(frozen=True)
class Resampled:
    """Bootstrap results of one test; NaN where undefined.

    Attributes:
        percentile_low, percentile_high, bca_low, bca_high: 95 % over items.
        difference, crossed_low, crossed_high: set minus control population, 95 % over items and draws.
        p_median, p_low, p_high: rank p over item resamples, median and central 90 %.
        band_low, band_high: where one fresh control set is expected (95 %).
        draw_sd, residual_sd: components of the control scores' spread, between sets and item by set.
    """

    percentile_low: float = math.nan
    percentile_high: float = math.nan
    bca_low: float = math.nan
    bca_high: float = math.nan
    difference: float = math.nan
    crossed_low: float = math.nan
    crossed_high: float = math.nan
    p_median: float = math.nan
    p_low: float = math.nan
    p_high: float = math.nan
    band_low: float = math.nan
    band_high: float = math.nan
    draw_sd: float = math.nan
    residual_sd: float = math.nan


@dataclass
class Bootstrap:
    """Resampling weights of a report, made on first use; one instance serves all its tests."""

    resamples: int = RESAMPLES
    seed: int = SEED
    _weights: dict[tuple[str, int], Floats] = field(default_factory=dict)

    def item_weights(self, clusters: int) -> Floats:
        """Shape [B, clusters]; the same for every test with as many clusters."""
        return self._get("items", clusters)

    def draw_shares(self, draws: int) -> Floats:
        """Shape [B, draws], rows sum to 1."""
        return self._get("draws", draws)

    def _get(self, kind: str, size: int) -> Floats:
        if (kind, size) not in self._weights:
            # a stream of its own for each shape, whatever was asked for before
            rng = np.random.default_rng([self.seed, size, kind == "draws"])
            weights = st.resample_weights(size, self.resamples, rng)
            self._weights[(kind, size)] = weights / size if kind == "draws" else weights
        return self._weights[(kind, size)]

    def run(self, own: Floats, null: Floats, codes: st.Codes) -> Resampled:
        """All resampled numbers of one test.

        Args:
            own: item scores of the set, shape [N].
            null: item scores of its control sets, shape [N, R]; R may be 0.
            codes: cluster numbers, shape [N].
        """
        clusters = int(codes.max()) + 1 if codes.size else 0
        if clusters < 2 or not np.isfinite(own).all() or not np.isfinite(null).all():
            return Resampled()
        r = null.shape[1]
        means = st.bootstrap_means(np.column_stack([own, null]), codes, self.item_weights(clusters))
        percentile = st.percentile_bounds(means[:, :1])
        bca = st.bca_bounds(own[:, None], codes, means[:, :1])
        out = {
            "percentile_low": percentile.low[0],
            "percentile_high": percentile.high[0],
            "bca_low": bca.low[0],
            "bca_high": bca.high[0],
        }
        if r:
            out["difference"] = own.mean() - null.mean()
            stability = st.rank_stability(means)
            out |= {"p_median": stability.median, "p_low": stability.low, "p_high": stability.high}
        if r > 1:
            crossed = st.crossed_from_means(float(out["difference"]), means, self.draw_shares(r))
            band = st.prediction_band(null.mean(axis=0))
            parts = st.variance_components(null)
            out |= {"crossed_low": crossed.low, "crossed_high": crossed.high}
            out |= {"band_low": band.low, "band_high": band.high}
            out |= {"draw_sd": math.sqrt(parts.draw), "residual_sd": math.sqrt(parts.residual)}
        return Resampled(**{k: float(v) for k, v in out.items()})
