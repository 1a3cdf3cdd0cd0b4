"""Control families: which random (or matched, or deliberately damaging) sets a discovered set is held against.

Draw ``r`` of a family depends on the seed, the family and the parent's identity alone, so that asking for more draws
keeps the first ones and every table of a run compares with the same sets. A draw has exactly the parent's size or is
an error; a draw that equals the parent is drawn again. Which null each family states is written in docs/head-sets.md.
"""

from harness_heads.controls.draws import LOW_SCORE_PERCENTILE, draw_controls
from harness_heads.controls.facts import HeadFacts, facts_from_dict, facts_of
from harness_heads.controls.table import set_table

__all__ = ["LOW_SCORE_PERCENTILE", "HeadFacts", "draw_controls", "facts_from_dict", "facts_of", "set_table"]
