"""Registers commands with their request code and the type of a good answer (None: an empty one). Pure."""

from collections.abc import Callable
from typing import Any, TypeVar

from rmq.codes import RequestCode

CODES: dict[type[Any], RequestCode] = {}
ANSWERS: dict[type[Any], type[Any] | None] = {}
C = TypeVar("C")


def command(code: RequestCode, answer: type[Any] | None) -> Callable[[type[C]], type[C]]:
    """Enters the class below as the command with this code and this type of answer."""

    def enter(cls: type[C]) -> type[C]:
        CODES[cls], ANSWERS[cls] = code, answer
        return cls

    return enter
