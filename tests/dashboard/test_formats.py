"""How values are shown."""

import pytest

from rmq.dashboard import formats
from rmq.errors import InvalidArgument

VERSIONS = {
    513: "5.5.0",
    512: "5.5.0.SNAPSHOT",
    477: "5.3.2",
    407: "4.9.7",
    393: "4.9.0",
    371: "4.7.9",
    213: "4.0.0",
    18: "18",
    613: "613",
}


@pytest.mark.parametrize(("number", "shown"), [*VERSIONS.items(), (0, "-"), (-1, "-")])
def test_versions_of_clients(number: int, shown: str) -> None:
    assert formats.client_version(number) == shown


def test_what_is_almost_nothing_is_not_shown_as_less() -> None:
    assert [formats.duration(seconds) for seconds in (-0.2, 0.0, 0.4, 59.0, 61.0, 90_000.0)] == [
        "0 s",
        "0 s",
        "0 s",
        "59 s",
        "1.0 min",
        "1.0 d",
    ]
    assert [formats.ago(5_000_000, now_ms) for now_ms in (5_090_000, 5_000_000, 4_990_000, 0)] == [
        "1.5 min ago",
        "0 s ago",
        "just now",
        "1.4 h ahead of this clock",
    ]
    assert [formats.rate(number) for number in (0, 0.01, 0.5, 99.94, 1234.5)] == ["0", "< 0.1", "0.5", "99.9", "1\u202f234"]


def test_half_a_character_in_json() -> None:
    """As a program leaves it that cuts a text in JavaScript's or Java's way: it is shown as it was sent."""
    sent = rb'{"a": "cut \ud83d"}'
    assert formats.body(sent) == sent.decode()
    assert formats.body(rb'{"a": "\ud83d\ude00"}') == '{\n  "a": "\U0001f600"\n}'


@pytest.mark.parametrize("text", ["yesterday", "9" * 15, "9" * 400, "9" * 5000, "10000-01-01T00:00"])
def test_what_is_no_time(text: str) -> None:
    """The page said `Internal Server Error` to nanoseconds, or a year too far."""
    with pytest.raises(InvalidArgument, match="is no time"):
        formats.to_ms(text)


def test_times_of_forms_and_links() -> None:
    assert formats.to_ms("") is None
    assert formats.to_ms("1764000000000") == 1_764_000_000_000
    assert formats.to_ms(formats.field_time(1_764_000_000_000)) == 1_764_000_000_000


@pytest.mark.parametrize(
    "sent", ['{"a": 0.12345678901234567890}', '{"a": 1e400}', '{"a": 1, "a": 2}', "[1e99999999999999999999]"]
)
def test_json_that_would_be_other_json_is_shown_as_it_was_sent(sent: str) -> None:
    assert formats.body(sent.encode()) == sent


def test_numbers_of_json_stay() -> None:
    shown = formats.body(b'{"a": 19.90, "b": 0.1, "c": 123456789012345678901234567890, "d": 1e300}')
    assert shown == '{\n  "a": 19.9,\n  "b": 0.1,\n  "c": 123456789012345678901234567890,\n  "d": 1e+300\n}'
