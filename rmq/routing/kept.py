"""Texts by namespace and key that administrators store at a nameserver [KVConfigManager]. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from rmq.codes import ResponseCode
from rmq.errors import Refusal

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""By topic: how many queues of it each broker has, as "broker-a:4;broker-b:4"."""
MAX_ENTRIES: Final = 20_000
MAX_KEY, MAX_VALUE = 255, 64 * 1024  # characters
MAX_ALL: Final = 16 * 1024 * 1024  # characters of all entries: the file is written whole for each change


class KeptTable:
    """`json` is RocketMQ's kvConfig.json."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = self._size = 0  # of all entries; the second in characters

    def get(self, namespace: str, key: str) -> str | None:
        return self._namespaces.get(namespace, {}).get(key)

    def all_of(self, namespace: str) -> dict[str, str]:
        return dict(self._namespaces.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises Refusal. What makes the table smaller is taken, whatever is kept."""
        more = self._growth(namespace, key, value)
        if more > 0 and self._size + more > MAX_ALL:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{self._size} characters are kept, of at most {MAX_ALL}: delete some")
        self._put(namespace, key, value)

    def _put(self, namespace: str, key: str, value: str) -> None:
        if not 0 < len(namespace) <= MAX_KEY or not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE:
            about = f"namespace and key have 1 to {MAX_KEY} characters, the value at most {MAX_VALUE}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        is_new = self.get(namespace, key) is None
        if is_new and self._count >= MAX_ENTRIES:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{MAX_ENTRIES} entries are kept, which is the most: delete some")
        self._size += self._growth(namespace, key, value)
        self._count += is_new
        self._namespaces.setdefault(namespace, {})[key] = value

    def _growth(self, namespace: str, key: str, value: str) -> int:
        """By how many characters the table grows with it."""
        before = self.get(namespace, key)
        return len(namespace) + len(key) + len(value) if before is None else len(value) - len(before)

    def delete(self, namespace: str, key: str) -> bool:
        """Deletes the entry; says whether it was there."""
        rows = self._namespaces.get(namespace, {})
        value = rows.pop(key, None)
        if value is not None:
            self._count -= 1
            self._size -= len(namespace) + len(key) + len(value)
        if not rows:
            self._namespaces.pop(namespace, None)
        return value is not None

    def json(self) -> dict[str, Any]:
        return {"configTable": self._namespaces}

    def load(self, source: Mapping[str, Any]) -> None:
        """Puts the entries of such a file, even past MAX_ALL. Raises Refusal, TypeError, AttributeError, KeyError."""
        for namespace, rows in source["configTable"].items():
            for key, value in rows.items():
                self._put(namespace, key, str(value))
