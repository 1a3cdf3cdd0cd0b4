"""Find visual attention heads, intervene on them, and hold each claim to its random controls.

``intervene``, ``read``, ``Mask``, ``Steer`` and ``Ablate`` are for use without a harness; they load torch on first use.
"""

from typing import Any

__version__ = "0.1.0"

_LIBRARY = ("Ablate", "Mask", "Steer", "intervene", "read")


def __getattr__(name: str) -> Any:
    if name in _LIBRARY:
        from harness_heads import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
