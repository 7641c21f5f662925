"""Decides which broker may register under which id of a broker group. Pure (N2, N4).

The holder of an id is the broker that registered with it last, while its connection is open and it was heard within SILENT_S.

1. Leadership of a group passes from a holder only to a store that the holder named as a member of its group, and only with
   a larger epoch. No other broker gets it, whatever epoch it claims: not another group of the same name, not a copy of the
   disk, not a stranger.
2. When nobody holds it, another group waits until no member of the last leader's group is registered any more; then it
   begins anew, in whatever epoch. A member needs an epoch not smaller than the last one for as long as the group is
   remembered, unless it is the only one (a lone broker: nobody else can have led).
3. The place of a follower passes from a holder to the same store only.

RocketMQ's brokers send no store id and epoch 0: of two brokers with one name the first one has the name while it is there.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal

LEADER = 0  # key of the leader among a broker group's addresses [MixAll.MASTER_ID]
SILENT_S = 65.0  # ours register every 30 s, RocketMQ's every 10 to 60 s [registerNameServerPeriod]


class Claim(NamedTuple):
    """A broker that wants to be registered. `store`: the id of its store, "" if it does not tell."""

    broker_name: str
    broker_id: int
    address: str
    epoch: int
    store: str


class Known(NamedTuple):
    """A broker that is registered. `members`: the stores of its group as it knows them, its own included."""

    address: str
    store: str
    members: frozenset[str]
    heard: float


def check_claim(claim: Claim, registered: Mapping[int, Known], epoch: int, stores: frozenset[str], now: float) -> None:
    """`registered`: the group's brokers by their ids; `epoch` and `stores` (its own and those it named) of its last leader.
    Raises Refusal, with the leader as hint."""
    held = {broker_id: one for broker_id, one in registered.items() if now - one.heard <= SILENT_S}
    if claim.broker_id == LEADER:
        _check_leader(claim, held, epoch, stores)
    else:
        _check_place(claim, held.get(claim.broker_id))
    for broker_id, one in held.items():
        if broker_id != claim.broker_id and one.address == claim.address and one.store != claim.store:
            raise _refusal(f"{claim.address} is registered as {broker_id} by another store", held)


def _check_leader(claim: Claim, held: Mapping[int, Known], epoch: int, stores: frozenset[str]) -> None:
    leader = held.get(LEADER)
    if leader is None:
        _check_free(claim, held, epoch, stores)
    elif (leader.store, leader.address) == (claim.store, claim.address):
        if claim.epoch < epoch:
            raise _over(claim, held, epoch)
    elif claim.epoch < epoch:
        raise _over(claim, held, epoch)
    elif claim.epoch == epoch or claim.store == leader.store or claim.store not in leader.members:
        about = f"{leader.address} already leads in epoch {epoch}, and did not name {claim.address} as one that may take over"
        raise _refusal(f"{claim.broker_name}: {about}; do two brokers share the name?", held)


def _check_free(claim: Claim, held: Mapping[int, Known], epoch: int, stores: frozenset[str]) -> None:
    waits = [one.address for one in held.values() if one.store in stores]  # for a leader of their group
    if waits and claim.store not in stores.union(*(one.members for one in held.values())):
        raise _refusal(f"{claim.broker_name}: {', '.join(waits)} of another group of that name are registered", held)
    if claim.epoch < epoch and claim.store in stores and len(stores) > 1:
        raise _over(claim, held, epoch)


def _check_place(claim: Claim, holder: Known | None) -> None:
    if holder is not None and holder.store != claim.store:
        about = f"brokerId {claim.broker_id} of {claim.broker_name} is {holder.address}'s: give each broker an id of its own"
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, about)


def _over(claim: Claim, held: Mapping[int, Known], epoch: int) -> Refusal:
    return _refusal(f"{claim.broker_name}: epoch {claim.epoch} of {claim.address} is over, {epoch} is known here", held)


def _refusal(about: str, held: Mapping[int, Known]) -> Refusal:
    leader = held.get(LEADER)
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, about, leader.address if leader else "")
