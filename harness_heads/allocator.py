"""The C library's allocator, told to keep freed memory.

glibc hands large freed blocks back to the kernel, and touching them again costs a page fault per 4 KiB. Head sets that
run together free and take blocks of megabytes in every layer: on a CPU these faults were about a tenth of the engine's
time, and of a whole eager forward's (``tests/benchmarks/engine.py`` with and without ``--keep-freed-memory``).
"""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
_TRIM_BYTES, _MMAP_BYTES = 1 << 30, 1 << 28
SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Keep up to 1 GiB of freed memory in this process from now on; blocks of 256 MiB and more still come and go.

    Returns:
        Whether that is so: not where the C library is another, or the environment has already set it up.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in SET_BY_USER):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP, _MMAP_BYTES)) and bool(mallopt(_TRIM, _TRIM_BYTES))
