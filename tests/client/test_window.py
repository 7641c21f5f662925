"""One queue's window: order, limits, and the offset that may be committed."""

import asyncio

from hypothesis import given, settings, strategies as st

from rmq.client.consumer.inbox import Inbox
from rmq.client.consumer.window import Window
from rmq.client.shared.message import ReceivedMessage
from rmq.log.records import record
from rmq.model import MessageQueue

QUEUE = MessageQueue("T", "a", 0)


def message(offset: int, queue: MessageQueue = QUEUE, size: int = 10) -> ReceivedMessage:
    draft = record.draft("T", bytes(size), b"", born_timestamp=0, born_host=bytes(8))
    return ReceivedMessage(record.decode(draft)._replace(queue_offset=offset), queue)


def filled(count: int, queue: MessageQueue = QUEUE) -> Window:
    window = Window(queue, 0)
    window.add([message(offset, queue) for offset in range(count)], count)
    return window


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_committed_offset_never_passes_what_is_unfinished(data: st.DataObject) -> None:
    """C6: out-of-order endings, failures, filtered-out offsets."""
    window = Window(QUEUE, 0)
    handed: dict[int, ReceivedMessage] = {}
    held: dict[int, ReceivedMessage] = {}
    finished: set[int] = set()
    pulled: set[int] = set()
    for _ in range(data.draw(st.integers(1, 40))):
        step = data.draw(st.sampled_from(["pull", "take", "finish", "fail", "again"]))
        if step == "pull":
            begin = window.next_offset
            offsets = data.draw(st.sets(st.integers(begin, begin + 5)))
            window.add([message(offset) for offset in sorted(offsets)], begin + 6)
            pulled |= offsets
        elif step == "take" and window.has_ready:
            taken = window.take()
            assert taken.queue_offset not in handed
            assert taken.queue_offset not in finished
            handed[taken.queue_offset] = taken
        elif step == "finish" and handed:
            offset = data.draw(st.sampled_from(sorted(handed)))
            window.finish(handed.pop(offset))
            finished.add(offset)
        elif step == "fail" and handed:
            offset = data.draw(st.sampled_from(sorted(handed)))
            held[offset] = handed.pop(offset)
            assert window.hold(held[offset], alone=data.draw(st.booleans())) >= 1
        elif step == "again" and held:
            window.again(held.pop(data.draw(st.sampled_from(sorted(held)))))
        unfinished = pulled - finished
        assert window.committable == min(unfinished, default=window.next_offset)
        assert window.count == len(unfinished)
        assert window.handed == len(handed)


def test_a_failed_message_holds_its_queue_and_comes_again_first() -> None:
    window = filled(3)
    first = window.take()
    assert window.hold(first) == 1
    assert not window.has_ready
    window.again(first)
    assert window.take() is first
    assert window.hold(first) == 2


def test_a_failed_message_may_wait_alone() -> None:
    """The others go on; it is the next one when its time has come, and nothing is committed past it (C6)."""
    window = filled(3)
    first = window.take()
    assert window.hold(first, alone=True) == 1
    window.finish(window.take())
    assert window.committable == 0
    window.again(first)
    assert [window.take().queue_offset for _ in range(2)] == [0, 2]


def test_two_failed_messages_come_again_in_order() -> None:
    window = filled(4)
    first, second = window.take(), window.take()
    window.hold(second)
    window.hold(first)
    window.again(first)
    assert not window.has_ready
    window.again(second)
    assert [window.take().queue_offset for _ in range(4)] == [0, 1, 2, 3]


def test_limits_by_count_bytes_and_span() -> None:
    """C18."""
    window = filled(3)
    assert window.is_full(3, 1000)
    assert window.is_full(10, 30)
    assert not window.is_full(4, 31)
    window.add([message(2001)], 2002)
    assert window.is_full(1000, 10_000)
    window.finish(window.take())
    assert not window.is_full(1000, 10_000)


def test_an_empty_window_takes_even_a_message_above_the_limit() -> None:
    assert not Window(QUEUE, 7).is_full(1, 1)


def test_queues_take_turns() -> None:
    inbox = Inbox()
    for number in (0, 1):
        inbox.offer(filled(2, QUEUE._replace(queue_id=number)))
    taken = [inbox.take_now() for _ in range(5)]
    assert [each and (each.window.queue.queue_id, each.message.queue_offset) for each in taken] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        None,
    ]


def test_a_dropped_queue_gives_out_nothing_more() -> None:
    inbox, window = Inbox(), filled(2)
    inbox.offer(window)
    first = inbox.take_now()
    window.dropped = True
    assert first is not None
    assert inbox.take_now() is None
    first.window.finish(first.message)
    assert window.committable == 1


async def test_an_offer_between_looking_and_waiting_is_not_lost() -> None:
    inbox = Inbox()
    assert inbox.take_now() is None
    waiting = asyncio.create_task(inbox.until_arrived())  # begins to wait only at the next turn
    inbox.offer(filled(1))
    await asyncio.wait_for(waiting, 5)
    assert inbox.take_now() is not None


async def test_a_waiting_taker_is_woken_by_an_offer_and_by_the_end() -> None:
    inbox, never = Inbox(), asyncio.Event()
    takers = [asyncio.create_task(inbox.take(never)) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.offer(filled(1))
    done, _ = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    inbox.close()
    assert {await each is None for each in takers} == {True, False}
