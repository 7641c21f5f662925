"""A node takes no fresh pages for answers that are freed and made again."""

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource
from rmq.commands.shared import allocator
{}
def answers():
    return [bytes([number]) * 350_000 for number in range(16)]
for _ in range(3):
    answers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    answers()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(first: str) -> int:
    return int(subprocess.run([sys.executable, "-c", _FAULTS.format(first)], stdout=subprocess.PIPE, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another")
def test_memory_of_answers_is_used_again() -> None:
    assert faults("allocator.keep_freed()") < 100 < 10_000 < faults("")
