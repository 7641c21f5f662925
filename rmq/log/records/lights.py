"""Light queues [LMQ]: one stored message is also in each queue that it names, at an offset of that queue's own. Pure.

The names stand in a property that the sender writes, the offsets in another one, which the leader writes at the append. So they
are in the log, and the queues of all nodes are the same.
"""

from collections.abc import Sequence

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.log.records.properties import (
    CRC_BYTES,
    LIGHT_NAMES,
    LIGHT_OFFSETS,
    MAX_PROPERTIES_BYTES,
    bytes_to_properties,
    strip_names,
)
from rmq.log.records.record import Record, decode, encode
from rmq.model import LIGHT_PREFIX
from rmq.names import check_known_topic

MAX_LIGHT_QUEUES = 500  # that one message may be in
_MOST_DIGITS = 20  # of an offset, with its comma


def light_queues_in(properties: bytes) -> tuple[str, ...]:
    """The light queues that a message names; none if it names nothing. Raises Refusal MESSAGE_ILLEGAL for wrong names."""
    said = bytes_to_properties(properties).get(LIGHT_NAMES, "")
    if not said.strip():
        return ()
    names = tuple(said.split(","))
    if len(names) > MAX_LIGHT_QUEUES:
        raise _illegal(f"it names {len(names)} light queues: at most {MAX_LIGHT_QUEUES} are allowed; send it in parts")
    if len(set(names)) < len(names):
        raise _illegal("it names a light queue twice")
    for name in names:
        _check(name)
    if len(properties) + len(LIGHT_OFFSETS) + 2 + _MOST_DIGITS * len(names) > MAX_PROPERTIES_BYTES + CRC_BYTES:
        raise _illegal(f"its properties leave no room for the offsets in {len(names)} light queues: name fewer")
    return names


def _check(name: str) -> None:
    if not name.startswith(LIGHT_PREFIX) or name == LIGHT_PREFIX or "@" in name:  # files with offsets say topic@group
        raise _illegal(f"{name[:40]!r} is no light queue: {LIGHT_PREFIX}, then a name without @; commas separate names")
    try:
        check_known_topic(name)
    except Refusal as refusal:
        raise _illegal(refusal.remark) from None


def with_offsets(draft: bytes, queue_offsets: Sequence[int]) -> bytes:
    """The draft (`record.draft`), which now says where it is in each light queue; `light_queues_in` has found room for that."""
    made = decode(draft)
    said = f"{LIGHT_OFFSETS}\x01{','.join(map(str, queue_offsets))}\x02".encode()
    own, checksum = made.properties[:-CRC_BYTES], made.properties[-CRC_BYTES:]
    return encode(made._replace(properties=own + said + checksum))


def only_in(message: Record, queue: str) -> bytes:
    """The draft of a message that goes to that light queue, and to no other one that its sender named. Raises Refusal
    MESSAGE_ILLEGAL if its properties have no room for that."""
    own = strip_names(message.properties[:-CRC_BYTES], {LIGHT_NAMES.encode()}) + f"{LIGHT_NAMES}\x01{queue}\x02".encode()
    if len(own) + len(LIGHT_OFFSETS) + 2 + _MOST_DIGITS > MAX_PROPERTIES_BYTES:
        raise _illegal("its properties leave no room for its place in the lite topic: send fewer")
    return encode(message._replace(properties=own + message.properties[-CRC_BYTES:]))


def _illegal(why: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{LIGHT_NAMES}: {why}")
