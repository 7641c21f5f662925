"""Where a queue is pulled from, decided without a network."""

from rmq.client.shared.source import LEADERLESS_S, Source

FOLLOWERS = {2: "f:2", 3: "f:3"}


def test_the_leader_is_pulled_from_until_it_has_failed_for_a_second() -> None:
    source = Source()
    assert source.choose("l:1", True, FOLLOWERS, 10.0) == ("l:1", False)
    source.failed(False, "l:1", 10.0)
    source.failed(False, "l:1", 10.5)
    assert source.choose("l:1", False, FOLLOWERS, 10.0 + LEADERLESS_S - 0.1) == ("l:1", False)
    assert source.choose("l:1", False, FOLLOWERS, 10.0 + LEADERLESS_S) == ("f:2", True)


def test_followers_take_turns_when_one_fails() -> None:
    source = Source()
    source.failed(False, "", 0.0)
    taken = []
    for now in (2.0, 3.0, 4.0):
        address, by_follower = source.choose("", False, FOLLOWERS, now)
        source.failed(by_follower, "", now)
        taken.append(address)
    assert taken == ["f:2", "f:3", "f:2"]


def test_a_leader_that_is_back_or_a_new_one_is_asked_after_each_answer_of_a_follower() -> None:
    source = Source()
    source.failed(False, "l:1", 0.0)
    assert source.choose("l:1", False, FOLLOWERS, 2.0)[1]
    source.answered(True, 0)
    assert source.choose("l:1", False, FOLLOWERS, 2.1) == ("f:2", True)  # still dead: not dialled before every pull
    assert source.choose("l:1", True, FOLLOWERS, 2.1) == ("l:1", False)
    assert source.choose("n:1", False, FOLLOWERS, 2.1) == ("n:1", False)
    source.failed(False, "n:1", 2.2)
    assert source.choose("n:1", True, FOLLOWERS, 2.3) == ("f:2", True)  # it refuses: a follower's turn, then again
    source.answered(True, 0)
    assert source.choose("n:1", True, FOLLOWERS, 2.4) == ("n:1", False)
    source.answered(False, 0)
    source.failed(False, "n:1", 5.0)
    assert source.choose("n:1", False, FOLLOWERS, 5.5) == ("n:1", False)


def test_a_suggested_node_is_pulled_from_until_it_says_otherwise_or_fails() -> None:
    source = Source()
    source.answered(False, 3)
    assert source.choose("l:1", True, FOLLOWERS, 0.0) == ("f:3", True)
    assert source.choose("l:1", True, {}, 0.0) == ("l:1", False)  # it has left the route
    source.failed(True, "l:1", 0.0)
    assert source.choose("l:1", True, FOLLOWERS, 0.0) == ("l:1", False)
    source.answered(False, 2)
    source.answered(True, 0)
    assert source.choose("l:1", True, FOLLOWERS, 0.0) == ("l:1", False)


def test_without_followers_there_is_only_the_leader() -> None:
    source = Source()
    source.failed(False, "", 0.0)
    assert source.choose("", False, {}, 100.0) == ("", False)
