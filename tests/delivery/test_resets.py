"""Resets that readers have not followed yet."""

from rmq.delivery.offsets import OffsetTable
from rmq.delivery.resets import GroupQueue, ResetTable

P = GroupQueue("g", "T", 0)


def pending(offset: int = 4, reader: str = "me") -> ResetTable:
    table = ResetTable()
    table.apply(list(P), [offset, reader])
    return table


def test_a_reader_is_sent_there_once_and_then_goes_on():
    """Java before 5 commits the old place for 10 s between both pulls: it counts for nothing until the second."""
    table = pending()
    assert table.take(P, 10, "me") == 4
    assert P in table
    assert table.take(P, 4, "me") is None
    assert P not in table
    assert table.take_followed() == [P]
    assert table.take_followed() == []


def test_who_does_not_follow_is_not_sent_for_ever():
    table = pending()
    assert [table.take(P, 10, "me") for _ in range(3)] == [4, 4, 4], "an answer may be lost"
    assert table.take(P, 10, "me") is None


def test_who_begins_again_at_the_place_has_heard():
    table = pending()
    assert table.take(P, 4, "me") == 4
    assert table.take(P, 4, "me") is None


def test_another_reader_that_begins_there_goes_on():
    assert pending().take(P, 4, "other") is None
    assert pending().take(P, 4, "me") == 4, "it may hold what it pulled before"
    table = pending()
    assert table.take(P, 10, "me") == table.take(P, 10, "other") == 4


def test_a_later_reset_is_not_removed_by_the_word_on_an_earlier_one():
    table = pending()
    table.take(P, 4, "other")
    table.stage([P])
    assert table.take_followed() == []
    table.apply(list(P), [7, ""])
    table.unstage([P])
    table.give_back([P])
    assert table.take_followed() == []
    assert table.take(P, 10, "other") == 7


def test_what_could_not_be_written_is_written_later():
    table = pending()
    table.take(P, 4, "other")
    assert table.take_followed() == [P]
    table.give_back([P])
    assert table.take_followed() == [P]
    table.apply(list(P), None)
    table.give_back([P])
    assert (table.take_followed(), dict(table.committed())) == ([], {})


def test_a_new_leader_begins_with_what_is_committed():
    table = pending()
    table.take(P, 4, "other")
    table.stage([GroupQueue("g", "T", 1)])
    table.drop_overlay()
    assert P in table
    assert GroupQueue("g", "T", 1) not in table


def test_commits_that_wait_do_not_come_behind_a_reset():
    table = OffsetTable()
    table.update(*P, 10, "me")
    lines = table.stage_reset({P: 4})
    assert not table.update(*P, 11, "me")
    assert table.take_dirty() == []
    assert [(name, tuple(value) if name == "reset" else value) for name, _, value in lines] == [("offset", 4), ("reset", (4, ""))]


def test_it_goes_with_its_topic_and_with_its_offset():
    table = OffsetTable()
    for end in (lambda: table.remove_topic("T"), lambda: table.apply(P, None)):
        table.apply(P, 4)
        table.resets.apply(P, [4, "me"])
        end()
        assert P not in table.resets
        assert not table.resets.committed()
