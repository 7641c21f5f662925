"""Message ids as RocketMQ's producers make them (property UNIQ_KEY). [MessageClientIDSetter]"""

from datetime import datetime

from rmq.clock import Clock


class UniqueIds:
    """Ids of one process: 32 hex digits, 56 where the host's address is IPv6.

    Host address, process id (2 bytes), a number of this process (4), ms since this month began in local time (4), a
    counter that wraps (2). Two ids of one process are equal only if more than 65536 are made within one ms.
    """

    def __init__(self, clock: Clock, host_ip: bytes, process_id: int, process_number: int) -> None:
        self._clock = clock
        fixed = host_ip + (process_id & 0xFFFF).to_bytes(2, "big") + (process_number & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = fixed.hex().upper()
        self._month = (0, 0)  # from, to: Unix ms
        self._count = 0
        self._last_ms = -1
        self._head = ""  # of the ids of that ms

    def next(self) -> str:
        return self.at(self._clock.wall_ms())

    def at(self, now_ms: int) -> str:
        if now_ms != self._last_ms:
            begin_ms, end_ms = self._month
            if not begin_ms <= now_ms < end_ms:
                self._month = begin_ms, _ = month_around(now_ms)
            self._last_ms, self._head = now_ms, f"{self._prefix}{now_ms - begin_ms & 0xFFFFFFFF:08X}"
        self._count = (self._count + 1) & 0xFFFF
        return f"{self._head}{self._count:04X}"


def month_around(now_ms: int) -> tuple[int, int]:
    """First ms of the local month that holds `now_ms`, and of the next one."""
    first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = (first.year + 1, 1) if first.month == 12 else (first.year, first.month + 1)
    return _unix_ms(first), _unix_ms(first.replace(year=year, month=month))


def _unix_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
