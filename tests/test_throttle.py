"""Guessing gets slower, whatever else the guesser does."""

import pytest

from rmq.throttle import FREE, Throttle, source_of


def test_names_that_are_made_up_do_not_make_it_forget() -> None:
    """S1: as many as fit are tried between two guesses at one user."""
    throttle, guess = Throttle(), ("10.0.0.1", "root")
    for _ in range(FREE + 3):
        throttle.failed(guess, 0.0)
    waits_s = throttle.wait_s(guess, 0.0)
    for number in range(20_000):
        throttle.failed(("10.0.0.1", f"nobody-{number}"), 0.0, exists=False)
    assert throttle.wait_s(guess, 0.0) == waits_s > 0
    for _ in range(FREE + 3):
        throttle.failed(("10.0.0.1", "nobody"), 0.0, exists=False)
    assert throttle.wait_s(("10.0.0.1", "nobody"), 0.0) == waits_s, "nobody learns which users exist"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1:2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("in memory", "elsewhere", False),
    ],
)
def test_what_is_one_source(one: str, other: str, same: bool) -> None:
    """Who has one address of an IPv6 network has all of them."""
    assert (source_of(one) == source_of(other)) == same
