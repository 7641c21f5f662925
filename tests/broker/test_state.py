"""State records: the lines of one change are in force together, or whoever waits for them hears that they are not."""

import asyncio
from functools import partial

import pytest

from rmq.broker.shared.state import Line, StateWriter, bodies_of, lines_of, resolve
from rmq.clock import SystemClock
from rmq.codes import ResponseCode as R
from rmq.delivery.offsets import OffsetKey
from rmq.errors import Refusal, RmqError
from rmq.log.units import Unit
from rmq.testing import LocalBroker

SMALL = {"segment_bytes": 64 * 1024, "max_message_bytes": 4096}
OFFSETS: list[Line] = [("offset", OffsetKey(f"a-group-of-a-usual-length-{number}", "T", 0), number) for number in range(2100)]


def test_bodies_hold_all_lines_in_order_and_none_is_too_long() -> None:
    for most in (1, 100, 10_000, 1 << 30):
        bodies = list(bodies_of(OFFSETS, most))
        assert [line for body in bodies for line in lines_of(body)] == [
            (table, list(key), value) for table, key, value in OFFSETS
        ]
        assert all(len(body) <= most or len(lines_of(body)) == 2 for body in bodies)
        assert all(len(lines_of(body)) % 2 == 0 for body in bodies), "an offset and its reset take effect together"
        assert max(len(lines_of(body)) for body in bodies) <= 2000


async def test_many_lines_go_into_a_log_with_small_files() -> None:
    """2 000 went into one record, which no file of that log could hold. The commit succeeded, and they were nowhere."""
    async with LocalBroker(**SMALL) as broker:
        await broker.serving.writer.commit(OFFSETS)
        known = broker.serving.tables.offsets.committed()
        assert [known.get(key) is not None for _, key, _ in OFFSETS] == [True] * len(OFFSETS)


NOT_STORED, LATE = Refusal(R.SERVICE_NOT_AVAILABLE, "not stored"), Refusal(R.SYSTEM_ERROR, "outcome unknown")
IN_PART = r"^SERVICE_NOT_AVAILABLE .*: a part of it is stored, or may be: do it again \(not stored\)$"


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ((None, None), None),
        ((NOT_STORED, None), IN_PART),
        ((None, NOT_STORED), IN_PART),
        ((LATE, NOT_STORED), IN_PART),
        ((NOT_STORED, NOT_STORED), r"^SERVICE_NOT_AVAILABLE .*: not stored$"),
        ((None, LATE), "outcome unknown"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_change_in_two_records_fails_with_either(
    errors: tuple[RmqError | None, ...], text: str | None, at_once: bool
) -> None:
    """As where the disk is full just for one: the second one alone said that all is stored, a refusal that nothing was.
    `at_once`: the second is not even taken."""
    async with LocalBroker() as broker:
        proposed: list[Unit] = []

        def propose(unit: Unit) -> None:
            if at_once and proposed and errors[1] is NOT_STORED:
                raise NOT_STORED
            proposed.append(unit)

        writer = StateWriter(propose, broker.serving.store.queues, b"host", SystemClock(), 1 << 20)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.write(OFFSETS, partial(resolve, done))
        for unit, error in zip(proposed, errors, strict=False):
            assert not done.done()
            if unit.owner is not None:
                told, argument = unit.owner  # type: ignore[misc]
                told(argument, unit, error, 0)
        if text is None:
            assert done.exception() is None
        else:
            with pytest.raises(Refusal, match=text):
                await done
