"""What becomes of a failed message (C10)."""

import pytest

from rmq.delivery import retry
from rmq.delivery.retry import Fate, after_failure, is_given_up, properties_of


def test_sixteen_tries_each_later_than_the_one_before_then_a_dead_letter() -> None:
    """10 s, 30 s, 1 m ... 2 h: levels 3 to 18."""
    fates = [after_failure("g", tries, 0, 16) for tries in range(18)]
    assert fates == [Fate("%RETRY%g", level) for level in range(3, 19)] + [Fate("%DLQ%g", 0)] * 2
    assert [fate.dead for fate in fates] == [False] * 16 + [True] * 2


@pytest.mark.parametrize(
    ("tries", "level", "most", "fate"),
    [
        (0, 1, 16, Fate("%RETRY%g", 1)),
        (5, 18, 16, Fate("%RETRY%g", 18)),
        (0, -1, 16, Fate("%DLQ%g", 0)),
        (0, 0, 0, Fate("%DLQ%g", 0)),
        (1, 2, 1, Fate("%DLQ%g", 0)),
        (3, 0, 100, Fate("%RETRY%g", 6)),
        (0, 5, -1, Fate("%DLQ%g", 0)),
    ],
)
def test_the_consumer_may_choose(tries: int, level: int, most: int, fate: Fate) -> None:
    assert after_failure("g", tries, level, most) == fate


def test_what_a_consumer_sends_itself_counts_the_coming_time_already() -> None:
    """The twins agree: given back at n of m, or sent with n + 1 of m."""
    for most in range(-1, 4):
        for tries in range(6):
            assert after_failure("g", tries, 0, most).dead == is_given_up(tries + 1, most, ordered=False)
    assert is_given_up(1, 16, ordered=True)


def test_where_it_came_from_is_noted_once() -> None:
    first = properties_of({"KEYS": "a"}, "orders", "7F01", 3)
    assert first == {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "7F01", "WAIT": "false", "DELAY": "3"}
    again = properties_of(first, "%RETRY%g", "7F02", 4)
    assert again == first | {"DELAY": "4"}


def test_what_would_send_it_its_first_way_again_is_dropped() -> None:
    """A due, committed or popped message that failed: neither held nor timed again. C10: the rest is kept."""
    assert {"TRAN_MSG", "REAL_TOPIC", "TIMER_DELIVER_MS", "POP_CK"} <= retry.DROPPED
    assert not {"KEYS", "TAGS", "UNIQ_KEY", "PGROUP", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"} & retry.DROPPED
    assert retry.group_of("%RETRY%g") == "g"
