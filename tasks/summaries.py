"""The summary that becomes the rows of lmms-eval's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness_heads.probes import ItemRecord
from harness_heads.tasks.plain import plain_summary


def summary_of(records: Sequence[ItemRecord]) -> Mapping[str, float | str]:
    """Row name -> value: the protocol's summary, or accuracies where a stock model answered in plain words."""
    if any(result is not None for record in records for result in record.arms.values()):
        from harness_heads.protocol.summary import task_summary

        summary: Mapping[str, float | str] = task_summary(records)
        return summary
    return plain_summary(records)
