"""How far a group is: what readers see, what is written, whose commits count."""

import json

import pytest
from hypothesis import given, strategies as st

from rmq.delivery import offsets
from rmq.delivery.cursors import CursorTable
from rmq.delivery.offsets import OffsetKey, OffsetTable
from rmq.errors import BadBytes, Refusal
from rmq.testing import entries

G = ("g", "T", 0)


def written(table):
    """What the broker does each 200 ms: take the lines, have them committed, apply them."""
    lines = table.take_dirty()
    for key, value in lines:
        table.apply(list(key), value)
    return lines


def test_a_commit_is_seen_at_once_and_written_once():
    table = OffsetTable()
    assert table.query(*G) is None
    table.update(*G, 5)
    table.update(*G, 7)
    assert table.query(*G) == 7
    assert written(table) == [(OffsetKey(*G), 7)]
    assert table.take_dirty() == []
    assert table.query(*G) == 7


def test_the_same_offset_again_writes_nothing():
    table = OffsetTable()
    table.update(*G, 5)
    written(table)
    assert table.update(*G, 5)
    assert table.take_dirty() == []


def test_former_owner_commits_lower_offset():
    """C7, story 43: the new owner is at 20; the old one wakes up and says 10."""
    table = OffsetTable()
    table.pulled(OffsetKey(*G), owner="old")
    table.update(*G, 10, "old")
    table.pulled(OffsetKey(*G), owner="new")
    table.update(*G, 20, "new")
    assert not table.update(*G, 10, "old")
    assert table.query(*G) == 20
    assert table.ignored_lower == 1
    assert table.update(*G, 15, "new")
    assert table.query(*G) == 15


def test_nobody_knows_the_owner_after_a_restart():
    """C7: so a lower offset has to wait until its client has pulled."""
    table = OffsetTable()
    table.apply(list(G), 20)
    assert not table.update(*G, 10, "client")
    assert not table.update(*G, 10, "")
    table.pulled(OffsetKey(*G), owner="client")
    assert table.update(*G, 10, "client")


@pytest.mark.parametrize(("queue_id", "offset"), [(0, -1), (0, 2**63), (-1, 0)])
def test_what_is_no_offset(queue_id, offset):
    with pytest.raises(Refusal, match="0 or more"):
        OffsetTable().update("g", "T", queue_id, offset)


def test_a_newer_commit_survives_the_line_of_an_older_one():
    table = OffsetTable()
    table.update(*G, 5)
    lines = table.take_dirty()
    table.update(*G, 9)
    table.apply(list(lines[0][0]), lines[0][1])
    assert table.query(*G) == 9
    assert written(table) == [(OffsetKey(*G), 9)]


def test_lines_that_could_not_be_written_are_due_again():
    table = OffsetTable()
    table.update(*G, 5)
    lines = table.take_dirty()
    table.give_back(key for key, _ in lines)
    assert table.take_dirty() == lines


def test_a_deposed_leader_forgets_what_was_not_committed():
    table = OffsetTable()
    table.apply(list(G), 5)
    table.update(*G, 9)
    table.drop_overlay()
    assert table.query(*G) == 5
    assert table.take_dirty() == []


def test_a_deleted_topic_leaves_no_ghost():
    """Replaying the same log gives the same: a topic of that name made later starts at nothing."""
    table = OffsetTable()
    table.apply(list(G), 5)
    table.apply(["g", "U", 0], 6)
    table.update(*G, 9)
    table.drop_pending({"T", "Other"})
    assert table.take_dirty() == []
    table.remove_topic("T")
    assert table.query(*G) is None
    assert table.topics_of("g") == {"U"}
    assert table.groups_of("T") == set()


def test_removing_a_group_line_by_line():
    table = OffsetTable()
    table.apply(["g", "T", 1], 5)
    table.apply(["other", "T", 1], 5)
    table.update("g", "U", 0, 1)
    assert table.topics_of("g") == {"T", "U"}
    assert table.groups_of("T") == {"g", "other"}
    keys = table.end_group("g")
    assert keys == [("g", "T", 1), ("g", "U", 0)]
    for key in keys:
        table.apply(list(key), None)
    assert table.topics_of("g") == set()
    assert table.take_dirty() == []


KEYS = st.tuples(st.sampled_from("gh"), st.sampled_from("TU"), st.integers(0, 1))
STEPS = st.lists(st.one_of(st.tuples(KEYS, st.integers(0, 9)), st.just("take"), st.just("commit")), max_size=40)


@given(steps=STEPS)
def test_readers_see_the_latest_commit_and_replay_ends_in_it(steps):
    """C7, for one owner: whatever the moments of writing and committing."""
    table, latest, log, applied = OffsetTable(), {}, [], 0
    for step in steps:
        if step == "take":
            log += table.take_dirty()
        elif step == "commit":
            for key, value in log[applied:]:
                table.apply(list(key), value)
            applied = len(log)
        else:
            key, offset = step
            table.pulled(OffsetKey(*key), owner="me")
            table.update(*key, offset, "me")
            latest[key] = offset
            assert table.query(*key) == offset
    log += table.take_dirty()
    replayed = OffsetTable()
    for key, value in log:
        replayed.apply(list(key), value)
    for key, value in log[applied:]:
        table.apply(list(key), value)
    assert replayed.committed() == table.committed() == latest
    for key in latest:
        assert key[1] in table.topics_of(key[0])
        assert key[0] in table.groups_of(key[1])


def test_consumer_offset_json_is_rocketmqs_and_comes_back():
    table = OffsetTable()
    table.apply(["g", "T", 0], 15, 1_700_000_000_000)
    table.apply(["g", "T", 1], 9, 1_700_000_000_001)
    table.update("g", "T", 2, 4)
    value = json.loads(json.dumps(offsets.offsets_json(table, CursorTable())()))
    assert value == {
        "dataVersion": {"counter": 2, "stateVersion": 0, "timestamp": 1_700_000_000_001},
        "groupTopicMap": {"g": ["T"]},
        "offsetTable": {"T@g": {"0": 15, "1": 9}},
        "pullOffsetTable": {},
    }
    assert offsets.from_json(value) == [(OffsetKey("g", "T", 0), 15), (OffsetKey("g", "T", 1), 9)]


def test_offsets_of_broadcast_groups_are_not_taken_over():
    assert offsets.from_json({"offsetTable": {"T@g@broadcast": {"0": 3}, "T@g": {0: 4}}}) == [(OffsetKey("g", "T", 0), 4)]


@pytest.mark.parametrize("value", [{}, {"offsetTable": []}, {"offsetTable": {"T": {"0": 1}}}, {"offsetTable": {"T@g": {"x": 1}}}])
def test_a_broken_file_says_so(value):
    with pytest.raises(BadBytes, match=r"consumerOffset\.json"):
        offsets.from_json(value)


def test_there_are_so_many_offsets_and_the_known_ones_go_on(monkeypatch):
    """Of those that are written, and of those that wait to be: a store that takes nothing does not fill the memory."""
    monkeypatch.setattr(offsets, "MAX_OFFSETS", 3)
    table = OffsetTable()
    for queue_id in range(3):
        assert table.update("g", "T", queue_id, 1)
    with pytest.raises(Refusal, match="delete groups"):
        table.update("g", "T", 3, 1)
    written(table)
    with pytest.raises(Refusal, match="delete groups"):
        table.update("g", "T", 3, 1)
    assert table.update("g", "T", 2, 2)
    table.apply(("g", "T", 0), None)
    assert table.update("g", "T", 3, 1)


def test_rows_share_their_names():
    """10 000 topics of 8 queues that three groups read: 165 bytes each instead of 265, and all are taken."""
    assert offsets.MAX_OFFSETS >= 10_000 * 8 * 3
    table = OffsetTable()
    for queue_id in range(2):
        table.apply(["".join(("group ", "one")), "".join(("topic ", "one")), queue_id], 1)
    one, other = table.committed()
    assert (one.group is other.group, one.topic is other.topic) == (True, True)


def test_who_pulled_last_is_remembered_of_so_many(monkeypatch):
    monkeypatch.setattr(offsets, "MAX_PULLERS", 2)
    table = OffsetTable()
    for queue_id in range(5):
        table.pulled(OffsetKey("g", "T", queue_id), "me")
    assert entries(table) <= 2
    table.update("g", "T", 4, 9, "me")
    assert table.update("g", "T", 4, 3, "me")


def test_an_export_is_made_of_a_copy():
    """It is made in a thread, while commits go on: 200 000 rows take a second."""
    table = OffsetTable()
    table.apply(OffsetKey("g", "t", 0), 5)
    value = offsets.offsets_json(table, CursorTable())
    table.apply(OffsetKey("g", "t", 1), 7)
    assert value()["offsetTable"] == {"t@g": {"0": 5}}


def test_what_a_pop_passed_is_written_like_a_commit_or_overtaken():
    table, key = OffsetTable(), OffsetKey(*G)
    table.passed(key, 5)
    assert (table.query(*G), table.take(*G)) == (5, None), "nobody waits for it"
    assert written(table) == [(key, 5)]
    table.passed(key, 8)
    assert table.overtake(key)
    assert (table.query(*G), table.take_dirty()) == (5, [])


def test_what_is_on_its_way_is_not_overtaken():
    """Its line may come behind that of the later place, and would set the group back to what was handed out."""
    table, key = OffsetTable(), OffsetKey(*G)
    table.passed(key, 5)
    lines = table.take_dirty()
    assert not table.overtake(key)
    table.passed(key, 8)
    assert not table.overtake(key)
    assert table.take(*G) == 8, "a pop settles it first"
    for _, value in [*lines, (key, 8)]:
        table.apply(list(key), value)
    assert table.overtake(key)
    assert table.query(*G) == 8


def test_a_commit_is_not_overtaken():
    table, key = OffsetTable(), OffsetKey(*G)
    table.update(*G, 5)
    table.passed(key, 8)
    assert not table.overtake(key)
    table.passed(OffsetKey("h", "T", 0), 3)
    table.update("h", "T", 0, 4)
    assert not table.overtake(OffsetKey("h", "T", 0))
    assert dict(written(table)) == {key: 8, OffsetKey("h", "T", 0): 4}
