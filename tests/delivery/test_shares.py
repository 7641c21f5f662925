"""Shares: nobody fills a table for all others."""

from rmq.delivery.shares import Owner, Share, Shares
from rmq.testing import entries


def test_none_takes_more_than_its_part():
    shares = Shares(Share(of_connection=3, of_address=5, in_all=7))
    one, same_host, other, third = Owner(1, "a"), Owner(2, "a"), Owner(3, "b"), Owner(4, "c")
    assert "4 " not in shares.refused(one, 3)
    assert shares.refused(one, 4) == "one connection may have 3"
    shares.take(one, 3)
    shares.take(same_host, 2)
    assert shares.refused(same_host, 1) == "all connections of a together may have 5"
    shares.take(other, 2)
    assert shares.refused(third, 1) == "all clients together may have 7"
    shares.give(one, 1)
    assert not shares.refused(third, 1)


def test_who_has_nothing_is_forgotten():
    shares = Shares(Share(3, 5, 7))
    for number in range(3):
        shares.take(Owner(number, f"{number}"), 2)
        shares.give(Owner(number, f"{number}"), 2)
    assert (shares.taken, entries(shares)) == (0, 0)
