"""Statistics of the protocol: pure, vectorised functions on NumPy arrays, one concept a module.

Undefined results are NaN with a reason beside them, never 0. Randomness is a ``numpy.random.Generator`` passed in.
"""

from harness_heads.protocol.statistics.association import (
    MASS_STATISTICS,
    critical_rho,
    mass_statistics,
    spearman,
    uncorrected_count,
)
from harness_heads.protocol.statistics.draws import (
    control_spread,
    crossed_from_means,
    crossed_interval,
    crossed_weights,
    prediction_band,
    rank_stability,
    variance_components,
)
from harness_heads.protocol.statistics.intervals import (
    Codes,
    bca_bounds,
    bootstrap_means,
    cluster_codes,
    percentile_bounds,
    resample_weights,
    t_interval,
)
from harness_heads.protocol.statistics.multiplicity import holm, max_t
from harness_heads.protocol.statistics.overlap import (
    ceiling_fraction,
    decompose,
    half_split_overlaps,
    layer_chance,
    uniform_chance,
)
from harness_heads.protocol.statistics.paired import (
    SCOPE,
    equivalence,
    group_difference,
    paired_t,
    set_level_floor,
    sign_flip,
    t_from_p,
    wilcoxon_p,
)
from harness_heads.protocol.statistics.power import (
    allowed_exceedances,
    detectable_by_items,
    detectable_by_rank,
    rank_power,
)
from harness_heads.protocol.statistics.ranks import (
    TOLERANCE,
    Floats,
    floor,
    minimum_controls,
    rank_p,
    sequential_p,
    two_stage_p,
)

__all__ = [
    "MASS_STATISTICS",
    "SCOPE",
    "TOLERANCE",
    "Codes",
    "Floats",
    "allowed_exceedances",
    "bca_bounds",
    "bootstrap_means",
    "ceiling_fraction",
    "cluster_codes",
    "control_spread",
    "critical_rho",
    "crossed_from_means",
    "crossed_interval",
    "crossed_weights",
    "decompose",
    "detectable_by_items",
    "detectable_by_rank",
    "equivalence",
    "floor",
    "group_difference",
    "half_split_overlaps",
    "holm",
    "layer_chance",
    "mass_statistics",
    "max_t",
    "minimum_controls",
    "paired_t",
    "percentile_bounds",
    "prediction_band",
    "rank_p",
    "rank_power",
    "rank_stability",
    "resample_weights",
    "sequential_p",
    "set_level_floor",
    "sign_flip",
    "spearman",
    "t_from_p",
    "t_interval",
    "two_stage_p",
    "uncorrected_count",
    "uniform_chance",
    "variance_components",
    "wilcoxon_p",
]
