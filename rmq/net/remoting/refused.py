"""Request codes of RocketMQ that are refused for good: why, and what to use instead, as docs/compatibility.md says it. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple


class Refused(NamedTuple):
    """`why` and `instead`: half sentences for whoever asked."""

    why: str
    instead: str


def _all(codes: Iterable[int], why: str, instead: str) -> dict[int, Refused]:
    return dict.fromkeys(codes, Refused(why, instead))


REFUSED: Final[dict[int, Refused]] = {
    **_all(
        (43, 45, 60, 61, 402, 901, 904, 905, 906),
        "between RocketMQ's brokers of one group; ours copy one log",
        "rmq admin group, 907 for the state of the copies",
    ),
    **_all(range(50, 55), "ACL 1.0, which RocketMQ 5.3 removed", "users and policies: 3001 to 3010"),
    **_all((354, 355), "RocksDB internals", "the store has plain files: rmq store"),
    **_all(
        (513,),
        "static topics are not served",
        "updateTopic at each broker; addPeer, removePeer to change machines",
    ),
    **_all((902, 903), "broker containers", "one process for each broker"),
    **_all(
        (*range(1001, 1007), *range(1008, 1014)),
        "controllers: the nodes of a group elect their leader themselves",
        "rmq admin group, rmq admin transferLeader",
    ),
    **_all(range(2001, 2005), "cold-data control: reads from the device are bounded always", "none is needed"),
    **_all((200056,), "of RocketMQ's RocksDB store of pops", "none is needed"),
    **_all((200072,), "RocketMQ only names it", "200051 with liteTopic"),
}


def about(code: int) -> str:
    """What follows the remark "request type N not supported" of a code that stands in REFUSED."""
    why, instead = REFUSED[code]
    return f": {why}; instead: {instead}"
