"""What the codec needs to make records of RocketMQ's sends, which the log knows."""

import re
from collections.abc import Callable
from typing import Protocol


class Records(Protocol):
    """`rmq.log.records.fastpath`, as far as it makes records. Raises `struct.error` for numbers that do not fit a record."""

    def draft(
        self,
        /,
        topic: str,
        body: bytes,
        properties: bytes,
        *,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> bytes:
        """Raises InvalidArgument."""
        ...

    def fast_draft(
        self,
        topic: str,
        added: bytes,
        body: bytes,
        properties: bytes,
        flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        /,
    ) -> tuple[bytes, int, bytes] | None: ...

    def matched_draft(
        self, topic: str, added: bytes, /
    ) -> Callable[[bytes, bytes, bytes | None, int, int, bytes, int], tuple[bytes, int] | None]: ...

    def matched_half(
        self, topic: str, queue_id: int, group: str, added: bytes, /
    ) -> Callable[[bytes, bytes, bytes, bytes | None, int, int, bytes], tuple[bytes, int] | None]: ...

    def given_pairs(self, one: str, two: str, plain: str, /, of_half: bool = False) -> bytes: ...

    def fast_given(self, properties: bytes, /) -> re.Match[bytes] | None: ...

    def fast_given_half(self, properties: bytes, /) -> re.Match[bytes] | None: ...

    def draft_many(
        self, topic: str, batch: bytes, born_timestamp: int, born_host: bytes, reconsume_times: int, /
    ) -> tuple[bytes, list[int], list[int]] | None:
        """Records, their sizes, hashes of their tags; None: some of them must be drafted one by one, and checked."""
        ...
