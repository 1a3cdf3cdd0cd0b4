"""The embedded model ``tiny-digits``: a real, very small Qwen3-VL trained on handwritten digits."""

from pathlib import Path

NAME = "tiny-digits"
WEIGHTS: Path = Path(__file__).resolve().parent / "weights"

__all__ = ["NAME", "WEIGHTS"]
