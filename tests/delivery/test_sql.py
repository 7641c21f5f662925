"""SQL92 filters say what RocketMQ's own evaluator says (tests/interop/SqlOracle.java wrote it down), and take only so much."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rmq.codes import ResponseCode
from rmq.delivery.sql import MAX_DEPTH, MAX_LENGTH, MAX_SEARCHES, Sql, compile_sql
from rmq.delivery.sqlvalues import NotComparable
from rmq.delivery.sqlwords import MAX_WORDS
from rmq.errors import Refusal

CASES = json.loads((Path(__file__).parent.parent / "data" / "sql" / "cases.json").read_text())
LETTERS = {True: "T", False: "F", None: "N"}


def letter(sql: Sql, properties: dict[str, str]) -> str:
    try:
        found = LETTERS[sql.evaluate(properties)]
    except NotComparable:
        found = "E"
    assert sql.matches(properties) == (found == "T")
    return found


def said(text: str) -> str:
    try:
        sql = compile_sql(text)
    except Refusal as refusal:
        return "refused" if refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED else str(refusal)
    return "".join(letter(sql, properties) for properties in CASES["messages"])


def test_results_are_those_of_rocketmq():
    results = CASES["results"]
    assert len(results) >= 300
    assert {text: said(text) for text in results} == results


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("a = '" + "x" * MAX_LENGTH + "'", "characters"),
        (" OR ".join(["a = 1"] * (MAX_WORDS // 4 + 1)), "words"),
        ("(" * 5000 + "a = 1" + ")" * 5000, "deep"),
        ("NOT " * (MAX_DEPTH + 1) + "a = 1", "deep"),
        ("- " * (MAX_DEPTH + 1) + "1 = a", "deep"),
        (" = ".join(["a"] * (2 * MAX_DEPTH + 1)), "deep"),
        (" AND ".join(["a CONTAINS 'x'"] * (MAX_SEARCHES + 1)), "CONTAINS"),
        ("/*" * 8000, "begins no word"),
        ("a = 'x" + "''" * 8000, "begins no word"),
        ("a = " + "1" * 5000, "64 bits"),
        (f"a = {1 << 63}L", "64 bits"),
    ],
)
def test_hostile_expressions_are_refused(text: str, about: str) -> None:
    """What an expression may take is bounded before it is ever evaluated."""
    with pytest.raises(Refusal, match=about):
        compile_sql(text)


def test_the_largest_expressions_are_evaluated():
    chain = compile_sql(" AND ".join(["a > 0"] * (MAX_WORDS // 4)))
    assert chain.matches({"a": "1"})
    assert not chain.matches({"a": "x"})
    nested = compile_sql("(" * (MAX_DEPTH - 1) + "a = 1" + ")" * (MAX_DEPTH - 1))
    assert nested.matches({"a": "1"})


def test_texts_too_long_for_numbers_are_none():
    for text in ("a = 0", "a = 1.5", "a > b"):
        assert not compile_sql(text).matches({"a": "0" * 1000, "b": "1"})


def test_cost_grows_with_the_expression_and_the_properties():
    simple, search, many = compile_sql("a > 3"), compile_sql("a CONTAINS 'x'"), compile_sql("a > 3 OR b > 3 OR c > 3")
    assert simple.cost < many.cost
    assert simple.cost_of(100) < simple.cost_of(30_000) < search.cost_of(30_000)


@given(text=st.text(alphabet=" ()'=<>-+aAbBnNoOrRtT0139.,eElL/*\n", max_size=60))
def test_no_text_does_harm(text: str) -> None:
    """Refused or evaluated, nothing else."""
    said(text)
