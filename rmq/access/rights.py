"""The right each request code needs (S2), of the one table of request codes.

Today everybody may do everything; the table is what will be asked once there are users. Pure: codes in, rights out.
"""

from rmq.requests import REQUESTS, Request


def right_of(code: int) -> Request | None:
    """The right a request needs; None for a code we do not know, which nobody may use."""
    return REQUESTS.get(code)  # type: ignore[call-overload,no-any-return]


def may(subject: str, code: int, resource: str = "") -> bool:
    """Whether `subject` ("" = not logged in) may send this code for this topic or group. Unknown codes: nobody.

    There are no users yet, so everybody may do everything we know.
    """
    return right_of(code) is not None
