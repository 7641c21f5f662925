"""Who reads which queue."""

import pytest
from hypothesis import given, strategies as st

from rmq.model import MessageQueue
from rmq.routing.rebalance import STRATEGIES, average, average_by_circle

QUEUES = st.builds(
    lambda sizes: [MessageQueue("T", f"broker-{at}", queue_id) for at, size in enumerate(sizes) for queue_id in range(size)],
    st.lists(st.integers(0, 20), max_size=5),
)
MEMBERS = st.lists(st.text(alphabet="abc@#123", min_size=1, max_size=8), min_size=1, max_size=20, unique=True)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@given(queues=QUEUES, members=MEMBERS, chance=st.randoms(use_true_random=False))
def test_each_queue_has_exactly_one_owner_and_all_agree(strategy, queues, members, chance):
    """C8: whatever the order in which each member got the lists."""
    shares = []
    for me in sorted(members):
        chance.shuffle(queues)
        chance.shuffle(members)
        shares.append(strategy(tuple(queues), tuple(members), me))
    owned = [queue for share in shares for queue in share]
    assert sorted(owned) == sorted(queues)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(queues=QUEUES, members=MEMBERS)
def test_average_equals_the_rule_as_written(queues, members):
    """C8. The slow twin: AllocateMessageQueueAveragely step by step."""
    queues, members = sorted(queues), sorted(members)
    count, rest = len(queues), len(queues) % len(members)
    for place, me in enumerate(members):
        size = 1 if count <= len(members) else count // len(members) + (1 if rest and place < rest else 0)
        start = place * size if rest and place < rest else place * size + rest
        assert average(queues, members, me) == queues[start : start + size]


def test_examples():
    """C8."""
    queues = [MessageQueue("T", "b", queue_id) for queue_id in range(8)]
    ids = {me: [queue.queue_id for queue in average(queues, ["c", "a", "b"], me)] for me in "abc"}
    assert ids == {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]}
    ids = {me: [queue.queue_id for queue in average_by_circle(queues, ["c", "a", "b"], me)] for me in "abc"}
    assert ids == {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5]}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_who_is_no_member_owns_nothing(strategy):
    """C8: a member that the broker does not know yet waits."""
    assert strategy([MessageQueue("T", "b", 0)], ["a"], "stranger") == []
    assert strategy([MessageQueue("T", "b", 0)], [], "a") == []
