"""Texts by namespace and key that administrators store at a nameserver [KVConfigManager]. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from rmq.codes import ResponseCode
from rmq.errors import Refusal

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""By topic: how many queues of it each broker has, as "broker-a:4;broker-b:4"."""
MAX_ENTRIES: Final = 20_000
MAX_KEY, MAX_VALUE = 255, 64 * 1024  # characters


class KeptTable:
    """`json` is RocketMQ's kvConfig.json."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._namespaces.get(namespace, {}).get(key)

    def all_of(self, namespace: str) -> dict[str, str]:
        return dict(self._namespaces.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises Refusal."""
        if not 0 < len(namespace) <= MAX_KEY or not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE:
            about = f"namespace and key have 1 to {MAX_KEY} characters, the value at most {MAX_VALUE}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        if self.get(namespace, key) is None and self.count >= MAX_ENTRIES:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{MAX_ENTRIES} entries are kept, which is the most: delete some")
        self._namespaces.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str, key: str) -> bool:
        """Deletes the entry; says whether it was there."""
        rows = self._namespaces.get(namespace, {})
        known = rows.pop(key, None) is not None
        if not rows:
            self._namespaces.pop(namespace, None)
        return known

    @property
    def count(self) -> int:
        return sum(map(len, self._namespaces.values()))

    def json(self) -> dict[str, Any]:
        return {"configTable": self._namespaces}

    def load(self, source: Mapping[str, Any]) -> None:
        """Puts the entries of such a file. Raises Refusal, TypeError, AttributeError, KeyError if it is none."""
        for namespace, rows in source["configTable"].items():
            for key, value in rows.items():
                self.put(namespace, key, str(value))
