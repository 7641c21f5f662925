"""Ctrl-C while Spark works."""

import signal
from types import FrameType

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from analytics.spark import session


def test_the_callers_way_with_ctrl_c_stays() -> None:
    def ours(_number: int, _frame: FrameType | None) -> None: ...

    before = signal.signal(signal.SIGINT, ours)
    try:
        with session.own_interrupts():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark does
        assert signal.getsignal(signal.SIGINT) is ours
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_a_way_of_their_own_callers_get_sparks() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with session.own_interrupts():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
