"""Freed memory stays with the process: fewer page faults, and nothing where it cannot be set."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from harness_heads.allocator import SET_BY_USER

CODE = """
import resource, statistics, sys
import torch
from harness_heads.allocator import keep_freed_memory
torch.set_num_threads(1)
print(keep_freed_memory() if sys.argv[1] == "keep" else None)
a = torch.ones(2_000_000)
def layer():
    return ((a * 2) + (a * 3)) * (a + 1)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    layer()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(statistics.median_low(faults() for _ in range(41)))
"""


def run(word: str, **environment: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, word],
        capture_output=True,
        text=True,
        check=True,
        env={name: word for name, word in os.environ.items() if name not in SET_BY_USER} | environment,
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an allocator of glibc")
def test_blocks_that_come_and_go_cost_no_page_faults() -> None:
    kept, faults = run("keep")
    _, before = run("as it is")
    assert kept == "True"
    # the median layer: the heap may still grow by a block or two before its layout settles
    assert before > 10 * faults


def test_what_the_environment_says_is_left_alone() -> None:
    assert run("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"
