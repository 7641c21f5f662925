"""SQL92 filters: RocketMQ's grammar, types and three-valued logic, compiled once into closures [SelectorParser.jj]. Pure.

Evaluation gives True, False or None (unknown); only True matches. The work is limited by characters, words, depth, and searches
in texts; `Sql.cost` tells how much work one message takes, so that a filtering reader can stop in time.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rmq.delivery.sqlvalues import BOOL, DOUBLE, INT, LONG, NOTHING, NUMBERS, TEXT, NotComparable, comparing
from rmq.delivery.sqlwords import FLOAT, INTEGER, NAME, STRING, Words, refused

MAX_LENGTH: Final = 16 * 1024  # characters
MAX_DEPTH: Final = 32  # of parentheses, and of nested evaluation
MAX_SEARCHES: Final = 32  # CONTAINS: each searches a whole property of up to 32 KB
MESSAGE_COST: Final = 8  # for finding and splitting a message's properties
BYTES_OF_COST: Final = 128  # so many bytes of properties cost as much as one comparison
_REMEMBERED = 256

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]


class Term(NamedTuple):
    """A part of an expression. `constant`: it is a literal, and `value` is its value. `is_property`: it is a property's name.

    `type` is the type of each value but None. It is known beforehand: properties are texts, and nothing computes numbers of them.
    """

    type: str
    evaluate: Evaluate
    constant: bool = False
    value: Any = None
    is_property: bool = False
    depth: int = 1
    cost: int = 1


class Sql(NamedTuple):
    """A compiled expression. `cost`: units of work for one message. `searches`: how often it reads the properties' bytes.
    `names`: the properties whose values decide. `behind`: the first word behind the whole expression, which is ignored with all
    that follows it; "" if nothing is left."""

    text: str
    evaluate: Evaluate
    cost: int
    searches: int
    names: tuple[str, ...]
    behind: str

    def matches(self, properties: Properties) -> bool:
        """Never raises: values that cannot be compared do not match [ExpressionMessageFilter.isMatchedByCommitLog]."""
        try:
            return self.evaluate(properties) is True
        except NotComparable:
            return False

    def cost_of(self, properties_bytes: int) -> int:
        """Units of work for one message; each takes about a microsecond."""
        return MESSAGE_COST + self.cost + (1 + self.searches) * properties_bytes // BYTES_OF_COST


@lru_cache(maxsize=_REMEMBERED)
def compile_sql(text: str) -> Sql:
    """Compiles an expression; recent results are cached. Raises Refusal (SUBSCRIPTION_PARSE_FAILED)."""
    if len(text) > MAX_LENGTH:
        raise refused(f"{len(text)} characters, at most {MAX_LENGTH} are allowed")
    parser = _Parser(Words(text))
    term = _truth(parser.any_of())
    behind = parser.words.peek().text  # RocketMQ reads one more word and ignores its meaning
    return Sql(text, term.evaluate, term.cost, parser.searches, tuple(parser.names), behind)


def _truth(term: Term) -> Term:
    if term.type == BOOL or (term.constant and term.type == NOTHING):
        return term
    if term.is_property:  # a text is never True
        evaluate = term.evaluate
        return Term(BOOL, lambda properties: None if evaluate(properties) is None else False, cost=2)
    raise refused("a condition is expected where a value stands")


def _constant(kind: str, value: Any) -> Term:
    return Term(kind, lambda _properties: value, constant=True, value=value)


def _integer(text: str) -> Term:
    digits = text.rstrip("lL")
    if len(digits) > 19 or (value := int(digits)) >= 1 << 63:  # Python reads no number of more than 4300 digits
        raise refused(f"{text[:40]} does not fit into 64 bits")
    return _constant(INT if value < 1 << 31 else LONG, value)


def _float(text: str) -> Term:
    value = float(text)
    if not 0 < value < float("inf"):
        raise refused(f"{text} is no fraction that it can hold; zero is written 0")
    return _constant(DOUBLE, value)


def _check_ordered(*terms: Term) -> None:
    for term in terms:
        if term.type == BOOL or (term.constant and term.type not in NUMBERS):
            raise refused("only numbers and properties are compared by <, >, <=, >= and BETWEEN")


def _negated(term: Term) -> Term:
    """The number with its sign changed; unknown for anything else."""
    evaluate, cost = term.evaluate, term.cost + 1
    if term.type in NUMBERS:
        value = -evaluate({})
        return Term(term.type, lambda _properties: value, cost=cost)

    def unknown(properties: Properties) -> None:
        evaluate(properties)  # evaluated because it may raise

    return _deeper(Term(NOTHING, unknown, cost=cost), term)


def _not(term: Term) -> Term:
    evaluate = term.evaluate

    def opposite(properties: Properties) -> bool | None:
        found = evaluate(properties)
        return None if found is None else not found

    return _deeper(Term(BOOL, opposite, cost=term.cost + 1), term)


def _deeper(term: Term, *parts: Term) -> Term:
    """The term, one level deeper than its parts. Raises Refusal if it is too deep: evaluation recurses to that depth."""
    depth = 1 + max(part.depth for part in parts)
    if depth > 2 * MAX_DEPTH:
        raise refused(f"nested more than {MAX_DEPTH} deep")
    return term._replace(depth=depth)


def _equal(left: Term, right: Term) -> Term:
    one, other = left.evaluate, right.evaluate
    compare = _never_both if NOTHING in (left.type, right.type) else comparing(left.type, right.type, ordered=False)

    def equal(properties: Properties) -> bool | None:
        first, second = one(properties), other(properties)
        if first is None:
            return True if second is None else None
        return second is not None and compare(first, second) == 0

    return _deeper(Term(BOOL, equal, cost=left.cost + right.cost + 1), left, right)


def _never_both(_one: Any, _other: Any) -> int:
    raise AssertionError("one of them is always None")


def _checked_equal(left: Term, right: Term) -> Term:
    for term in (left, right):
        if term.constant and term.value is None:
            raise refused("nothing is compared with NULL: write IS NULL or IS NOT NULL")
    if left.constant and right.constant and left.type == BOOL != right.type:
        raise refused("TRUE and FALSE are not compared with other literals")
    return _equal(left, right)


_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


def _ordered(sign: str, left: Term, right: Term) -> Term:
    _check_ordered(left, right)
    one, other, holds = left.evaluate, right.evaluate, _ORDERS[sign]
    compare = _never_both if NOTHING in (left.type, right.type) else comparing(left.type, right.type, ordered=True)

    def in_order(properties: Properties) -> bool | None:
        if (first := one(properties)) is None or (second := other(properties)) is None:
            return None
        return holds(compare(first, second))

    return _deeper(Term(BOOL, in_order, cost=left.cost + right.cost + 1), left, right)


def _between(value: Term, low: Term, high: Term) -> Term:
    both = low.constant and high.constant
    if both and (low.value is None or high.value is None):
        raise refused("BETWEEN has no NULL as a bound")
    _check_ordered(value, low, high)
    if both and comparing(high.type, low.type, ordered=False)(high.value, low.value) < 0:
        raise refused(f"BETWEEN {low.value} AND {high.value}: the lower bound comes first")
    return _all((_ordered(">=", value, low), _ordered("<=", value, high)))


def _text_test(test: Callable[[str, str], bool], left: Term, searched: str, wanted: bool) -> Term:
    """A test of texts. It is False, with NOT or without, if the value is no text or the text to search is empty."""
    evaluate, is_text = left.evaluate, left.type == TEXT and bool(searched)

    def tested(properties: Properties) -> bool:
        found = evaluate(properties)
        return is_text and found is not None and test(found, searched) == wanted

    return _deeper(Term(BOOL, tested, cost=left.cost + 1), left)


def _in(left: Term, texts: frozenset[str], wanted: bool) -> Term:
    if not left.is_property:
        raise refused("only a property stands before IN")
    evaluate = left.evaluate

    def among(properties: Properties) -> bool | None:
        found = evaluate(properties)
        return None if found is None else bool((found in texts) == wanted)

    return Term(BOOL, among, depth=2, cost=left.cost + 1)


def _all(terms: tuple[Term, ...], ends: bool = False) -> Term:
    """AND; OR if `ends` is True. Evaluates the terms one by one until one decides."""
    evaluates = tuple(term.evaluate for term in terms)

    def joined(properties: Properties) -> bool | None:
        unknown = False
        for evaluate in evaluates:
            found: bool | None = evaluate(properties)
            if found is ends:
                return ends
            unknown |= found is None
        return None if unknown else not ends

    return _deeper(Term(BOOL, joined, cost=1 + sum(term.cost for term in terms)), *terms)


_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, searched: searched in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class _Parser:
    """A recursive descent parser with a method for each rule of the grammar."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.searches = 0
        self.names: dict[str, None] = {}  # in order
        self._depth = 0

    def any_of(self) -> Term:
        first = self._all_of()
        if self.words.peek().kind != "OR":
            return first
        terms = [_truth(first)]
        while self.words.takes("OR"):
            terms.append(_truth(self._all_of()))
        return _all(tuple(terms), ends=True)

    def _all_of(self) -> Term:
        first = self._equality()
        if self.words.peek().kind != "AND":
            return first
        terms = [_truth(first)]
        while self.words.takes("AND"):
            terms.append(_truth(self._equality()))
        return _all(tuple(terms))

    def _equality(self) -> Term:
        words, left = self.words, self._comparison()
        while (sign := words.peek().kind) in ("=", "<>", "IS"):
            words.take()
            if sign == "IS":
                wanted = not words.takes("NOT")
                words.need("NULL")
                null = _equal(left, _constant(NOTHING, None))
                left = null if wanted else _not(null)
            else:
                equal = _checked_equal(left, self._comparison())
                left = equal if sign == "=" else _not(equal)
        return left

    def _comparison(self) -> Term:
        words, left = self.words, self._signed()
        while True:
            kind = words.peek().kind
            if kind in _ORDERS:
                words.take()
                left = _ordered(kind, left, self._signed())
            elif kind in ("NOT", "BETWEEN", "IN", *_TESTS):
                left = self._worded(left)
            else:
                return left

    def _worded(self, left: Term) -> Term:
        words = self.words
        wanted = not words.takes("NOT")
        kind = words.take().kind
        if kind == "BETWEEN":
            low = self._signed()
            words.need("AND")
            high = self._signed()
            if wanted:
                return _between(left, low, high)
            return _all((_ordered("<", left, low), _ordered(">", left, high)), ends=True)
        if kind == "IN":
            return _in(left, self._texts(), wanted)
        if kind not in _TESTS:
            raise refused(f"NOT is followed by {kind} where BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is expected")
        if kind == "CONTAINS":
            self.searches += 1
            if self.searches > MAX_SEARCHES:
                raise refused(f"more than {MAX_SEARCHES} times CONTAINS")
        return _text_test(_TESTS[kind], left, self._text(), wanted)

    def _texts(self) -> frozenset[str]:
        self.words.need("(")
        found = [self._text()]
        while self.words.takes(","):
            found.append(self._text())
        self.words.need(")")
        return frozenset(found)

    def _text(self) -> str:
        return self.words.need(STRING).text[1:-1].replace("''", "'")

    def _signed(self) -> Term:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise refused(f"nested more than {MAX_DEPTH} deep")
        try:
            if self.words.takes("+"):
                return self._signed()
            if self.words.takes("-"):
                return _negated(self._signed())
            if self.words.takes("NOT"):
                return _not(_truth(self._signed()))
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> Term:
        kind, text = word = self.words.peek()
        if kind == STRING:
            return _constant(TEXT, self._text())
        self.words.take()
        if kind == INTEGER:
            return _integer(text)
        if kind == FLOAT:
            return _float(text)
        if kind in ("TRUE", "FALSE"):
            return _constant(BOOL, kind == "TRUE")
        if kind == "NULL":
            return _constant(NOTHING, None)
        if kind == NAME:
            self.names[text] = None
            return Term(TEXT, lambda properties: properties.get(text), is_property=True)
        if kind == "(":
            inner = self.any_of()
            self.words.need(")")
            return inner
        raise refused(f"{word.text or 'the end'!r} stands where a value is expected")
