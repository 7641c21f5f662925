"""Tag expressions, and the hash behind them."""

import pytest
from hypothesis import given, strategies as st

from rmq.codes import ResponseCode
from rmq.delivery import filters
from rmq.errors import Refusal
from rmq.javahash import MAX_HASHES, java_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0), ("a", 97), ("TagA", 2598919), ("hello world", 1794106052), ("polygenelubricants", -(2**31)), ("Aa", 2112),
        ("BB", 2112), ("订单", 1129459), ("😀", 1772899),
    ],
)  # fmt: skip
def test_java_hash(text, value):
    assert java_hash(text) == value


@given(text=st.text())
def test_java_hash_equals_its_definition(text):
    """The slow twin: s[0] * 31^(n-1) + ... + s[n-1] over UTF-16 units, in 32 bits."""
    raw = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    assert java_hash(text) == (total + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", None), ("", None), (" * ", None), ("a", {"a"}), ("a||b", {"a", "b"}), (" a  ||  b || a", {"a", "b"}),
        ("||a||", {"a"}), ("a|b", {"a|b"}), ("two words", {"two words"}),
    ],
)  # fmt: skip
def test_expressions(expression, tags):
    assert filters.parse_tags(expression) == tags


@pytest.mark.parametrize("expression", ["||", " ", " || || "])
def test_an_expression_without_a_tag_is_refused(expression):
    with pytest.raises(Refusal) as refused:
        filters.parse_tags(expression)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_what_matches():
    """C14: codes let a wrong tag through, strings do not."""
    tags = filters.parse_tags("Aa || c")
    assert filters.codes(tags) == {2112, 99}
    assert filters.codes(["BB"]) <= filters.codes(tags)
    assert filters.matches(tags, {"TAGS": "Aa"})
    assert not filters.matches(tags, {"TAGS": "BB"})
    assert not filters.matches(tags, {})
    assert filters.matches(None, {"TAGS": "anything"})


def test_other_kinds_of_expressions_are_refused():
    assert filters.selection("a", "TAG") == filters.selection("a", "") == filters.codes(["a"])
    assert filters.selection("a > 3", "SQL92") == "a > 3"
    with pytest.raises(Refusal) as refused:
        filters.selection("a", "ODD")
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_an_expression_has_some_length():
    """Of those that were asked for many short ones are remembered, and few long ones: a client fills no memory with them."""
    longest = "||".join(f"{number:06}" for number in range(2048))[: filters.MAX_EXPRESSION]
    assert len(filters.codes_of(longest) or ()) == 2048
    with pytest.raises(Refusal, match="16384") as refused:
        filters.codes_of(longest.ljust(filters.MAX_EXPRESSION + 1))
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    for number in range(200):
        filters.codes_of(f"{number}" + "x" * 2000)
    assert filters.long_codes.cache_info().currsize <= 64
    assert filters.codes_of("a || b") == filters.codes(["a", "b"])
    assert filters.codes_of("*") is None


def test_hashes_are_remembered_of_so_many():
    for number in range(MAX_HASHES + 100):
        java_hash(f"{number}")
    assert java_hash.cache_info().currsize == MAX_HASHES
