"""The table of rights is complete."""

from rmq.access.rights import may, right_of
from rmq.codes import RequestCode
from rmq.requests import REQUESTS, Action


def test_every_code_has_a_row() -> None:
    """S2: a new request code without a row fails here."""
    missing = [code.name for code in RequestCode if code not in REQUESTS]
    assert not missing, f"give these a row in rmq/requests.py: {missing}"


def test_a_code_nobody_knows_is_nobody_s() -> None:
    """S2: deny by default."""
    assert right_of(9999) is None
    assert not may("", 9999)


def test_everybody_may_do_what_is_served() -> None:
    assert all(may("", code, "orders") for code in RequestCode)


def test_changes_need_more_than_reading() -> None:
    """S2: admin codes need the admin right."""
    changing = [code for code in RequestCode if code.name.startswith(("UPDATE_AND", "DELETE"))]
    assert changing
    for code in changing:
        assert REQUESTS[code].action is Action.ADMIN
