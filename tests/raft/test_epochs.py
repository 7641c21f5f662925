"""Where two logs part, against logs written out byte by byte."""

from hypothesis import given, strategies as st

from rmq.model import EpochEntry
from rmq.raft import epochs

Log = list[tuple[int, str]]  # who wrote each byte


def history_of(log: Log) -> tuple[EpochEntry, ...]:
    starts = [at for at, byte in enumerate(log) if at == 0 or log[at - 1] != byte]
    return tuple(EpochEntry(log[at][0], at, log[at][1]) for at in starts)


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Logs as elections make them: a common beginning, then each its own epochs; one writer an epoch, or not (fixed mode)."""
    common = draw(st.lists(st.integers(1, 3), max_size=3))
    tails = [draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=3)) for _ in range(2)]
    prefix: Log = []
    for epoch, count in enumerate(common, 1):
        prefix += [(epoch, "w")] * count
    logs = []
    longer = draw(st.sampled_from("xy-"))  # who has more of the last common epoch
    for writer, tail in zip("xy", tails, strict=True):
        log, epoch = list(prefix), len(common)
        if writer == longer and common:
            log += [(epoch, "w")] * draw(st.integers(1, 3))
        for step, count in tail:
            epoch += step + 1
            log += [(epoch, writer)] * count
        logs.append(log)
    return logs[0], logs[1]


@given(two_logs())
def test_rounds_end_at_the_common_prefix(logs: tuple[Log, Log]) -> None:
    """R14: in at most as many rounds as the follower has entries, and never below the common part."""
    leader, follower = logs
    common = next((at for at, (a, b) in enumerate(zip(leader, follower, strict=False)) if a != b), min(map(len, logs)))
    history = history_of(leader)
    for _ in range(len(history_of(follower)) + 1):
        mine = history_of(follower)
        if epochs.holds(history, 0, len(leader), len(follower), *epochs.last(mine)):
            assert leader[: len(follower)] == follower
            assert len(follower) == common
            return
        found = epochs.parting(history, len(leader), epochs.last(mine)[0])
        if found is None:
            assert common == 0  # nothing in common: it begins anew
            return
        cut = epochs.cut_at(mine, len(follower), found.epoch, found.end, found.writer)
        assert common <= cut < len(follower)
        follower = follower[:cut]
    raise AssertionError("more rounds than rows")


def test_rows_below_and_from() -> None:
    history = (EpochEntry(1, 0, "a"), EpochEntry(3, 50, "b"), EpochEntry(4, 90, "c"))
    assert epochs.below(history, 50) == history[:1]
    assert epochs.below(history, 51) == history[:2]
    assert epochs.from_start(history, 60) == history[1:]
    assert epochs.from_start(history, 0) == history
    assert [epochs.end_of(history, index, 120) for index in range(3)] == [50, 90, 120]
    assert epochs.merged(history, EpochEntry(4, 100, "d")) == history


def test_bytes_of_rocketmq_that_are_still_to_come_stay_known() -> None:
    """A follower that takes a snapshot knows where RocketMQ wrote in the log, before it has those bytes."""
    leaders = (
        EpochEntry(1, 0, "w"),
        EpochEntry(0, 50, "w"),
        EpochEntry(2, 60, "w"),
        EpochEntry(0, 80, "w"),
        EpochEntry(3, 90, "w"),
    )
    known = epochs.known_at(leaders, 0)
    for entry in leaders:
        known = epochs.merged(known, entry)
    assert known == leaders
    assert epochs.merged(known, EpochEntry(2, 60, "w")) == leaders  # its record comes again in the next file


def test_who_does_not_know_of_bytes_of_rocketmq_behind_its_log_begins_anew() -> None:
    history = (EpochEntry(1, 0, "w"), EpochEntry(0, 50, "w"), EpochEntry(2, 60, "w"))
    assert not epochs.holds(history, 0, 90, 0, 0, "")  # an empty log
    assert epochs.misses_rocketmqs(history, 50, 1, "w")
    assert not epochs.misses_rocketmqs(history, 30, 0, "w"), "it names them, so it knows them"
    assert not epochs.misses_rocketmqs(history, 70, 2, "w")
    assert not epochs.misses_rocketmqs(history, 70, 2, "other"), "that log parts from this one"
