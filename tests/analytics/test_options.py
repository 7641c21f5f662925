"""Options are understood or refused, never guessed."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from analytics.stores.options import Wanted, parse_options, unix_ms
from rmq.errors import InvalidArgument, StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import QueueRow, save_queues
from tests.analytics.stores import Sent, commit, write_store


def test_a_moment_is_its_milliseconds_in_each_year() -> None:
    """By floats one in five of 2004, 2038 and 2039 was 1 ms short: a filter `<=` missed the messages of that one."""
    for year in (2004, 2026, 2038, 2039):
        first = unix_ms(datetime(year, 7, 1, tzinfo=UTC))
        for ms in range(1000):
            moment = datetime(year, 7, 1, 9, tzinfo=timezone(timedelta(hours=9))) + timedelta(milliseconds=ms, microseconds=999)
            assert unix_ms(moment) == first + ms
    assert unix_ms(datetime(1969, 12, 31, 23, 59, 59, 999_999)) == -1


def test_nothing_given_is_everything() -> None:
    assert parse_options({}) == Wanted()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pth": "x"}, "no option .pth.; did you mean 'path'"),
        ({"zzzz": "x"}, "There are: path, paths, "),
        ({"body": "hex"}, "allowed are plain, raw, none"),
        ({"onDamage": "ignore"}, "allowed are fail, skip, quarantine"),
        ({"system": "yes"}, "allowed are true, false"),
        ({"from": "noon"}, "give an ISO time"),
        ({"from": "1795262400"}, "look like seconds"),
        ({"startingTimestamp": "179526240000000"}, "not between 2000 and 2100"),
        ({"to": "1970-01-02"}, "not between 2000 and 2100"),
        ({"from": "2026-11-22", "to": "2026-11-21"}, "is not before"),
        ({"from": "2026-11-22", "startingTimestamp": "2026-11-21"}, "say the same"),
        ({"subscribe": "A", "assign": '{"A": [0]}'}, "choose topics by one of them"),
        ({"subscribe": " , "}, "is empty"),
        ({"subscribe": "T,%LMQ%q"}, "is a light queue"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": "A"}, "no JSON"),
        ({"assign": "[1]"}, "names topics"),
        ({"assign": '{"A": 1}'}, "topics and their queues"),
        ({"startingOffsets": "latest"}, "reads nothing in a batch read"),
        ({"endingOffsets": "earliest"}, "reads nothing in a batch read"),
        ({"startingOffsets": '{"A": {"0": -1}}'}, "or -2 for earliest"),
        ({"endingOffsets": '{"A": {"0": -2}}'}, "or -1 for latest"),
        ({"endingOffsets": '{"A": [0]}'}, r'JSON like .*"1": -1'),
        ({"subscribe": "A", "startingOffsets": '{"B": {"0": 1}}'}, "not among the topics"),
        ({"minPartitions": "0"}, "a number from 1 on"),
        ({"maxOffsetsPerTrigger": "many"}, "a number from 1 on"),
        ({"includeHeaders": "true"}, "belongs to shape=kafka"),
        ({"queues": "a"}, "give numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        parse_options(options)


def test_kafkas_names() -> None:
    wanted = parse_options(
        {
            "subscribe": "A, B",
            "startingOffsets": '{"A": {"0": 23, "1": -2}}',
            "endingOffsets": '{"B": {"0": 5, "1": -1}}',
            "startingTimestamp": "1795262400000",
            "endingTimestamp": "2026-11-22T00:00:00+01:00",
            "failOnDataLoss": "FALSE",
        }
    )
    assert wanted.topics == {"A", "B"}
    assert (wanted.starts, wanted.ends) == ({"A": {0: 23}}, {"B": {0: 5}})
    assert (wanted.from_ms, wanted.to_ms) == (1_795_262_400_000, 1_795_302_000_000)
    assert not wanted.fail_on_loss


def test_what_spark_adds_for_a_table_is_known() -> None:
    given = {"path": "/s", "location": "/s", "owner": "me", "topics": "A", "option.topics": "A"}
    assert parse_options(given).topics == {"A"}


def test_topics_and_messages_that_are_not_there(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra `spark`")
    from analytics.stores.plan import plan

    offsets = write_store(tmp_path, [Sent("Orders"), Sent("Orders")])
    commit(tmp_path, offsets[1])
    save_queues(RealDisk(), str(tmp_path / "rmq"), [QueueRow("Orders", 0, 5, 9)])
    with pytest.raises(InvalidArgument, match="no topic 'orders'; did you mean 'Orders'"):
        plan(tmp_path, parse_options({"subscribe": "orders"}))
    assert plan(tmp_path, parse_options({"subscribe": "orders", "allowMissingTopics": "true"})) == []
    early = {"subscribe": "Orders", "startingOffsets": '{"Orders": {"0": 2}}'}
    with pytest.raises(StoreError, match="message 2 of Orders, queue 0 is gone, the first one left is 5"):
        plan(tmp_path, parse_options(early))
    assert plan(tmp_path, parse_options(early | {"failOnDataLoss": "false"})) != []
