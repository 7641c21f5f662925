"""What comes out of the machine. Values only.

An effect list is carried out in its order: whatever must be durable before something leaves the node stands before it.
"""

from typing import NamedTuple

from rmq.model import EpochEntry, EpochHistory
from rmq.raft.messages import Answer, FetchOk, NeedsSnapshot, Request, Ticket, Voters


class SaveVote(NamedTuple):
    """Make it durable before anything that follows (R8)."""

    epoch: int
    voted_for: str
    proven: bool


class AppendEpoch(NamedTuple):
    """Append an epoch record of that kind and report `Grown` (with its mark). `start`: the leader's first append; the counters
    of the queues come first. `voters`: a change of membership. Always the last of its list."""

    entry: EpochEntry
    kind: str
    voters: Voters
    epochs: EpochHistory


class AppendBytes(NamedTuple):
    """Check the leader's bytes, append the whole good entries, and report `Grown`. Last of its list.

    `epoch`: the leader's; its log holds none that is newer."""

    at: int
    data: bytes
    epoch: int


class Cut(NamedTuple):
    """Cut the log to `to` and make that durable (docs/storage, cuts). `epochs`: the epoch history after it.

    `keep`: what is cut off is saved before, in a file `lost-<epoch>-<offset>` for the operator."""

    to: int
    epochs: EpochHistory
    keep: bool = False


class Send(NamedTuple):
    """`node`'s answer comes back as `PeerAnswer`."""

    node: str
    request: Request


class Reply(NamedTuple):
    ticket: Ticket
    answer: Answer


class ReplyBytes(NamedTuple):
    """`answer` with up to `max_bytes` of the log from its `from_` on, whole entries, at least one, for the store `asker`."""

    ticket: Ticket
    answer: FetchOk
    max_bytes: int
    asker: str


class AwaitTurnEnd(NamedTuple):
    """Report `TurnEnded` when everything that this turn of the loop brings is appended."""


class Commit(NamedTuple):
    """Everything below `hw` is committed: dispatch, apply, then answer the waiters (while the lease is good)."""

    hw: int


class Replicated(NamedTuple):
    """Fixed mode: inSyncReplicas nodes, the master included, have everything below `offset`."""

    offset: int


class BecameLeader(NamedTuple):
    """The leader's epoch record is in the log: sends may be taken."""

    epoch: int


class SteppedDown(NamedTuple):
    """No longer leader: waiters are unknown, overlays and counters are dropped."""

    epoch: int
    reason: str


class InstallSnapshot(NamedTuple):
    """Delete log and derived files, take the snapshot from `node`; then report `SnapshotInstalled` or `InstallFailed`.

    `keep_from`: the log from there on is saved before, as in `Cut` (-1: nothing is)."""

    node: str
    answer: NeedsSnapshot
    keep_from: int = -1


class Done(NamedTuple):
    """The outcome of a Join, Leave, Transfer or Promote: "", or why it was refused."""

    ticket: Ticket
    refusal: str = ""


class Warn(NamedTuple):
    """For the operator."""

    text: str


class Fatal(NamedTuple):
    """This node must stop now (R15); it does nothing more."""

    reason: str


Effect = (
    SaveVote
    | AppendEpoch
    | AppendBytes
    | Cut
    | Send
    | Reply
    | ReplyBytes
    | AwaitTurnEnd
    | Commit
    | Replicated
    | BecameLeader
    | SteppedDown
    | InstallSnapshot
    | Done
    | Warn
    | Fatal
)
