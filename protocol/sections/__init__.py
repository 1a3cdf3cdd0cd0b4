"""Parts of a report: each module turns the analysis into the tables and figures of one question."""

from harness_heads.protocol.analysis import Analysis
from harness_heads.protocol.layout import Section
from harness_heads.protocol.sections.arms import arms_section
from harness_heads.protocol.sections.comparisons import comparisons_section
from harness_heads.protocol.sections.damage import damage_section
from harness_heads.protocol.sections.dose import dose_section
from harness_heads.protocol.sections.grounding import grounding_section
from harness_heads.protocol.sections.intervals import intervals_section
from harness_heads.protocol.sections.items import items_section
from harness_heads.protocol.sections.results import results_section
from harness_heads.protocol.sections.runs import runs_section
from harness_heads.protocol.sections.sets import overlap_section, sets_section
from harness_heads.protocol.sections.sweeps import rows_section, sweeps_section
from harness_heads.protocol.sections.wide import wide_section

_ORDER = (
    results_section,
    grounding_section,
    arms_section,
    intervals_section,
    comparisons_section,
    rows_section,
    sweeps_section,
    damage_section,
    dose_section,
    sets_section,
    overlap_section,
    wide_section,
    items_section,
    runs_section,
)


def sections(analysis: Analysis) -> tuple[Section, ...]:
    """All parts that the evidence fills, in reading order."""
    made = (build(analysis) for build in _ORDER)
    return tuple(section for section in made if not section.empty)


__all__ = ["sections"]
