"""The words of an SQL92 filter expression, read one at a time [SelectorParser.jj]. Pure.

Reading is lazy because RocketMQ's grammar does not require the end of the text: after a whole expression it reads one more word
and accepts whatever follows.
"""

import re
from typing import Final, NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal

MAX_WORDS: Final = 1024
KEYWORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
END, INTEGER, FLOAT, STRING, NAME = "end", "integer", "float", "string", "name"  # kinds; keywords and signs are their own

_skip = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*+[\n\r]|/\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*/)*").match
_word = re.compile(
    r"(?P<float>[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?|\.[0-9]++(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++)"
    r"|(?P<integer>0|[1-9][0-9]*+[lL]?)"
    r"|(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*+)"
    r"|(?P<string>'[^']*+'(?:'[^']*+')*)"
    r"|(?P<sign><>|>=|<=|[=<>(),+\-])"
).match
"""No repeated group is possessive: with one, Python 3.11.2, which Debian has, matches nothing."""


class Word(NamedTuple):
    kind: str
    text: str


def refused(about: str) -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"SQL92 filter: {about}")


class Words:
    """`next`: the next word. Raises Refusal for text that is no word, and for too many words."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._left = MAX_WORDS
        self._ahead: list[Word] = []

    def peek(self, further: int = 0) -> Word:
        while len(self._ahead) <= further:
            self._ahead.append(self._read())
        return self._ahead[further]

    def take(self) -> Word:
        word = self.peek()
        del self._ahead[0]
        return word

    def takes(self, kind: str) -> bool:
        """Takes the next word if it is of that kind; says whether it was."""
        if self.peek().kind != kind:
            return False
        self.take()
        return True

    def need(self, kind: str) -> Word:
        word = self.take()
        if word.kind != kind:
            raise refused(f"{word.text or 'the end'!r} stands where {kind} is expected")
        return word

    def _read(self) -> Word:
        skipped = _skip(self._text, self._at)
        assert skipped is not None
        self._at = skipped.end()
        if self._at == len(self._text):
            return Word(END, "")
        found = _word(self._text, self._at)
        if found is None:
            raise refused(f"{self._text[self._at : self._at + 20]!r} begins no word of it")
        self._left -= 1
        if self._left < 0:
            raise refused(f"more than {MAX_WORDS} words: subscribe by fewer conditions")
        self._at, kind, text = found.end(), str(found.lastgroup), found[0]
        if kind == "sign" or (kind == "name" and text.upper() in KEYWORDS):
            return Word(text.upper(), text)
        return Word(kind, text)
