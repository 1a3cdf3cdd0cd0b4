"""The summary that becomes the rows of lmms-eval's table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness_heads.probes import ItemRecord
from harness_heads.protocol.summary import task_summary


def summary_of(records: Sequence[ItemRecord]) -> Mapping[str, float | str]:
    """Row name -> value of the protocol's summary; what cannot be estimated is said in words."""
    return {
        name: "not estimable" if isinstance(value, float) and math.isnan(value) else value
        for name, value in task_summary(records).items()
    }
