"""Leak audit: what each arm must give without intervention before a contrast of arms means anything.

The limits are ours and stricter than paper A's Table 22 (it keeps tasks that these refuse): P(c) of at least .9 where
the answer is in sight, within .05 of chance where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness_heads.protocol.effects import ArmLevel

HIGH = 0.9
NEAR = 0.05
_SEEN = {"matched": "the answer is in the image", "oracle": "the prompt names the cell", "text": "the text suffices"}
_UNSEEN = {"mismatched": "the image shows none of the options", "blank": "the image is blank"}


@dataclass(frozen=True)
class Audit:
    """One arm against its range: mean P(c) without intervention, over the whole vocabulary."""

    task: str
    arm: str
    why: str
    p: float
    accuracy: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Whether P lies in the range; NaN does not."""
        return self.low <= self.p <= self.high

    @property
    def expected(self) -> str:
        """The range in words."""
        return f"at least {self.low:.2f}" if self.high == 1 else f"{self.low:.2f} to {self.high:.2f}"


def audits(task: str, levels: tuple[ArmLevel, ...], named_grid: bool = False) -> tuple[Audit, ...]:
    """Audits of every arm that has an expectation.

    Args:
        named_grid: the grid's question names the cell (NCS on grids), so that it is its own oracle; the grid of CERS,
            whose wording leaves the cell open, has no expectation.
    """
    seen = {**_SEEN, "grid": "the prompt names the cell"} if named_grid else _SEEN
    out = []
    for level in levels:
        chance = 1.0 / len(level.letters)
        if level.arm in seen:
            low, high, why = HIGH, 1.0, seen[level.arm]
        elif level.arm in _UNSEEN:
            low, high, why = max(0.0, chance - NEAR), chance + NEAR, _UNSEEN[level.arm]
        else:
            continue
        out.append(Audit(task, level.arm, why, level.p, level.accuracy, low, high))
    return tuple(out)
