"""What tells a half from other messages, and what is added to it while it waits (`rmq.broker.pending.halves`). Pure."""

from functools import lru_cache
from typing import Final

LONGEST_GROUP: Final = 255  # of producers
ROOM_BYTES: Final = 1024  # for properties that the broker adds to a message that waits, and when it hands it on
ASKED: Final = b"TRAN_MSG\x01true\x02"
transaction_id = b"__transactionId__\x01%b\x02".__mod__


@lru_cache(maxsize=4096)
def target(topic: str, queue_id: int) -> bytes:
    """The properties that say for which queue a half is."""
    return b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic.encode(), queue_id)
