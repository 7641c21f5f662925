"""What a node of the group may say. A peer that is broken, or is no member at all, must not end this node, nor make anything
durable that cannot be undone.

Epochs rise by one with each election, and an election needs a majority that hears of no leader. So a node that was away is
some epochs behind, never a million: `MAX_LEAP` is far beyond what years of elections bring, and so small that no
number of lies, each of which costs an fsync here, comes near the end of the numbers (docs/decisions).
"""

from rmq.raft.events import Follow
from rmq.raft.messages import Announce, Answer, Fetch, Request, Vote
from rmq.raft.roles import State

MAX_LEAP = 1_000_000


def leap(state: State, said: Request | Answer | Follow) -> str:
    """Why that epoch is not believed; "" if it is."""
    ahead = said.epoch - state.epoch
    if said.epoch >= 0 and ahead <= MAX_LEAP:
        return ""
    return f"epoch {said.epoch} is not believed: this node is in {state.epoch}, and {MAX_LEAP} ahead is the most (docs/operators)"


def doubt(state: State, request: Request) -> str:
    """Why this question is not even looked at; "" if it is. What a node says of itself is checked where it connects (`gate`)."""
    me = state.me
    if isinstance(request, Vote) and me.fixed:
        return "the roles of this group are fixed: nobody votes"
    if isinstance(request, Vote | Fetch) and not _is_store(request.store):
        return f"{request.store[:40]!r} is no store's id"  # it would be saved, as the one this node voted for
    if isinstance(request, Vote | Fetch) and request.store == me.store:
        return f"store {me.store} is this node's own: was its directory copied?"
    if isinstance(request, Announce) and request.leader == me.node:
        return f"node {me.node!r} is this one"
    return leap(state, request)


def newer_run(incarnation: int) -> str:
    """Why a run is refused when a later one of its store was heard, with that number."""
    what_to_do = "give a copy an empty directory, and run 'rmq store distrust' on one that was set back (docs/operators)"
    return f"a newer run of this store was here ({incarnation}): its directory was copied or set back; {what_to_do}"


def _is_store(text: str) -> bool:
    return text not in ("", "-") and len(text) <= 64 and text.isascii() and text.isprintable() and " " not in text
