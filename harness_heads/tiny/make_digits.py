"""Write ``digits.npz``: scikit-learn's handwritten digits and their four splits.

Run once (``python -m harness_heads.tiny.make_digits``); the result is shipped, so that nothing else needs
scikit-learn. The split is by image and stratified by class; the seed is fixed, so the file is reproducible.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from .data import SPLITS

SEED = 20260
HELD_OUT = 240


def split_codes(labels: np.ndarray) -> np.ndarray:
    """Split code of each image.

    Args:
        labels: (n,) class of each image.

    Returns:
        (n,) uint8, index into ``SPLITS``; every split but ``train`` holds ``HELD_OUT`` images.
    """
    codes = np.zeros(len(labels), dtype=np.uint8)
    left = np.arange(len(labels))
    for code, _ in enumerate(SPLITS[1:], start=1):
        left, taken = train_test_split(left, test_size=HELD_OUT, stratify=labels[left], random_state=SEED + code)
        codes[taken] = code
    return codes


def main() -> None:
    """Write the file beside this module."""
    bunch = load_digits()
    labels = bunch.target.astype(np.uint8)
    np.savez_compressed(
        Path(__file__).with_name("digits.npz"),
        images=bunch.images.astype(np.uint8),
        labels=labels,
        split=split_codes(labels),
    )


if __name__ == "__main__":
    main()
