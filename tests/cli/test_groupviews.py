"""How groups that elect their leader are shown, and what is warned of."""

import pytest

from rmq.client.admin import standing
from rmq.commands.shared.output import as_json
from rmq.commands.views import adminviews, groupviews
from rmq.errors import BadBytes
from rmq.model import BrokerAddresses, EpochEntry
from rmq.net.commands.peers import AWAY_S, LEVEL_S, GroupStatus, MemberStatus

GROUP = BrokerAddresses("c", "g", {0: "a:1", 2: "b:1", 3: "d:1"}, 7)
PLACES = [(GROUP, number, address) for number, address in GROUP.addresses.items()]
SEEN = {"n0": 0.0, "n1": 0.1, "n2": 9.0}


def member(node: str, *, voter: bool = True, unproven: bool = False, full: bool = False) -> MemberStatus:
    return MemberStatus(node, f"s-{node}", f"{node}:40911", voter, 90, 90, 10, SEEN[node], full, unproven, SEEN[node])


def status(
    role: str,
    node: str,
    end: int = 100,
    *,
    proven: bool = True,
    lease: bool = True,
    sync: bool = False,
    members: tuple[MemberStatus, ...] = (member("n0"), member("n1"), member("n2")),
) -> GroupStatus:
    epochs = [EpochEntry(3, 0, "w0"), EpochEntry(7, 60, "w1", True)]
    return GroupStatus(role, node, f"s-{node}", "n0", "a:1", 7, 0, end, end, 80, proven, lease, sync, epochs, list(members))


ALL = {"a:1": status("leader", "n0"), "b:1": status("follower", "n1", 90), "d:1": status("follower", "n2", 40)}


def test_the_cluster_list_begins_with_mqadmins_columns() -> None:
    table = adminviews.cluster_list([(*place, None) for place in PLACES], ALL, 0)
    assert list(table.columns)[:4] == ["cluster", "broker", "id", "address"]
    assert list(table.columns.values())[-6:] == ["Role", "Epoch", "End", "Committed", "Lag", "Votes"]
    assert [(row["id"], row["role"], row["lag"]) for row in as_json(table)] == [
        (0, "leader", 0),
        (2, "follower", 10),
        (3, "follower", 60),
    ]


def test_a_node_that_stands_alone_or_does_not_answer_has_blanks() -> None:
    table = adminviews.cluster_list([(*PLACES[0], None)], {}, 0)
    assert table.rows[0][-6:] == (None,) * 6


def test_all_is_well() -> None:
    assert list(standing.warnings(PLACES, ALL)) == []
    assert list(standing.warnings(PLACES, {})) == []  # standing alone


def test_what_an_operator_should_know() -> None:
    """D3: who may not vote, and why; flush modes; no leader, no majority, a full disk."""
    ill = {
        "a:1": status("leader", "n0", lease=False, members=(member("n0"), member("n1", full=True))),
        "b:1": status("follower", "n1", proven=False, sync=True),
    }
    found = list(standing.warnings(PLACES[1:], ill | {"d:1": ALL["d:1"]})) + list(standing.warnings(PLACES, ill))
    for part in (
        "no leader is registered",
        "n1 at b:1 may not vote (unproven)",
        "does not hear a majority",
        "the disk of n1 is full",
        "flush modes of its nodes differ (n0 async, n1 sync)",
    ):
        assert any(part in each for each in found), part


def test_who_votes() -> None:
    assert standing.votes(ALL["a:1"]) == "yes"
    assert standing.votes(status("follower", "n1", proven=False)) == "no: unproven"
    assert standing.votes(status("follower", "n1")._replace(fixed=True)) == "-"
    assert standing.votes(status("follower", "n1", members=(member("n0"), member("n1", voter=False)))) == "no: not a voter"


def test_followers_are_in_sync_behind_or_away() -> None:
    never = MemberStatus("n3", "s-n3", "n3:1", True, -1, -1, -1, -1.0, False, False)
    far, away = member("n1")._replace(level_seconds_ago=LEVEL_S + 0.1), member("n2")._replace(seen_seconds_ago=AWAY_S + 0.1)
    leader = status("leader", "n0", members=(member("n0"), far, away, never, member("n1", unproven=True)))
    rows = as_json(groupviews.ha_status(PLACES, ALL | {"a:1": leader}))
    assert [warning for warning in standing.warnings(PLACES, ALL | {"a:1": leader}) if "missing" in warning] == [
        "g: n2 is missing: the leader has not heard of it for 10 s"
    ]
    assert [row["status"] for row in rows] == ["Fall Behind", "Away", "Never Seen", "In Sync"]
    assert rows[-1]["votes"] == "no: unproven"


def test_a_node_that_is_damaged_is_asked_though_it_is_not_registered() -> None:
    """D8: which one, where, and what it waits for."""
    heard = {"a:1": ALL["a:1"], "b:1": ALL["b:1"]}
    ((group, number, address),) = standing.silent(PLACES[:2], heard)
    assert (group, number, address) == (GROUP, -1, "n2:40911")
    ill = status("damaged", "n2", members=())._replace(damaged="bytes 5 to 9; it waits for n1")
    places, known = [*PLACES[:2], (group, number, address)], heard | {address: ill}
    assert standing.silent(places, known) == []
    assert list(standing.warnings(places, known)) == ["g: the log of n2 at n2:40911 is damaged: bytes 5 to 9; it waits for n1"]
    rows = as_json(groupviews.ha_status(places, known))
    assert [(row["node"], row["status"]) for row in rows] == [("n1", "In Sync"), ("n2", "Damaged")]
    assert standing.votes(ill) == "no: damaged"


def test_epochs_end_where_the_next_begins() -> None:
    rows = as_json(groupviews.epochs([(*PLACES[0], ALL["a:1"])]))
    assert [(row["epoch"], row["start"], row["end"], row["lossy"]) for row in rows] == [(3, 0, 60, False), (7, 60, 100, True)]


@pytest.mark.parametrize("name", ["putTps", "commitLogDiskRatio", "earliestMessageTimeStamp", "msgPutTotalTodayNow"])
def test_runtime_info_that_is_none_is_damage_not_a_bug(name: str) -> None:
    """Of a peer that says anything: the program printed a traceback."""
    rows = [(GROUP, 0, "a:1", {name: "\x1bmany"})]
    with pytest.raises(BadBytes, match=f"{name} is '.x1bmany', no number"):
        assert adminviews.cluster_list(rows, {}, 0) != adminviews.cluster_totals(rows)
