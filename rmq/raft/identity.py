"""What a machine is told when it is made: who this node is, how long it waits, and what its store holds. Values only."""

from typing import NamedTuple

from rmq.model import EpochHistory
from rmq.raft.messages import Voters


class Timing(NamedTuple):
    """Seconds. A round of votes lasts `vote` to `vote` + `vote_random`."""

    fetch_timeout: float = 1.5
    fetch_random: float = 1.0
    check_quorum: float = 1.35
    vote: float = 0.5
    vote_random: float = 0.5
    max_wait: float = 0.25
    transfer: float = 2.0
    preferred: float = 60.0
    caught_up: float = 1.0
    master_catch_up: float = 30.0


class Identity(NamedTuple):
    """Who this node is. `preferred`: the node that shall lead when it can. `fixed`: no votes, RocketMQ's master and slaves:
    `master` says which, `in_sync` how many nodes, itself included, a SYNC_MASTER waits for (1: ASYNC_MASTER). `unclean`: an
    administrator ended the waiting for nodes that may know more, so an epoch of this run may lack committed bytes."""

    group: str
    node: str
    store: str
    incarnation: int
    address: str
    sync_flush: bool = False
    preferred: str = ""
    fixed: bool = False
    in_sync: int = 1
    master: bool = False
    unclean: bool = False


class RestoredState(NamedTuple):
    """What the store holds at the start. `lists`: (start of the record, voters), oldest first; what is configured begins at -1.

    `ready_at`: the S1 of a snapshot whose log is not all here yet (0: nothing is missing)."""

    epoch: int
    voted_for: str
    proven: bool
    log_start: int
    end: int
    hw: int
    epochs: EpochHistory
    lists: tuple[tuple[int, Voters], ...]
    ready_at: int = 0
    snapshot: tuple[int, int] | None = None
