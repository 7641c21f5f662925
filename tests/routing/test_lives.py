"""What waits for a topic belongs to one life of it (story 35)."""

import pytest

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import TopicConfig
from rmq.routing import lives
from rmq.routing.lives import EndTable, Life
from rmq.routing.topics import TopicTable

ROW = list(TopicConfig("T"))


def test_a_life_from_its_beginning_to_the_next() -> None:
    table = TopicTable()
    assert table.life("T", 10) is Life.NEVER
    table.apply("T", ROW)
    assert (table.life("T", 10), table.is_gone("T")) == (Life.GOES_ON, False)
    table.stage("T", None)
    assert table.life("T", 10) is Life.ENDING
    table.unstage("T")
    assert table.life("T", 10) is Life.GOES_ON, "it was not stored"
    table.apply("T", None)
    table.ends.apply("T", 20)
    assert (table.life("T", 10), table.life("T", 30), table.is_gone("T")) == (Life.OVER, Life.NEVER, True)
    table.apply("T", ROW)
    assert (table.life("T", 10), table.life("T", 30), table.is_gone("T")) == (Life.OVER, Life.GOES_ON, False)


def test_it_is_not_made_again_before_its_deletion_is_committed() -> None:
    """Whoever makes it: revive, a send, a group, an operator."""
    table = TopicTable()
    table.apply("T", ROW)
    table.stage("T", None)
    with pytest.raises(Refusal) as refused:
        table.stage("T", TopicConfig("T"))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert table.get("T") is None
    table.apply("T", None)
    table.stage("T", TopicConfig("T"))


def test_a_deletion_that_is_told_again_changes_nothing() -> None:
    """A start replays the log behind an older snapshot."""
    ends = EndTable()
    for offset in (10, 30, 10):
        ends.apply("T", offset)
    assert ends.of("T") == 30
    ends.apply("T", None)
    assert ends.of("T") == -1


def test_the_newest_deletions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "KEPT", 3)
    ends = EndTable()
    for offset, topic in enumerate("ABCAD"):
        ends.apply(topic, offset)
    assert list(ends.committed().items()) == [("C", 2), ("A", 3), ("D", 4)]
