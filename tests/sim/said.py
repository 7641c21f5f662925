"""What nodes have told each other: votes, what they hold, and when they were last in touch. It is noted when a message leaves."""

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from rmq.raft import events as ev, messages as m
from rmq.raft.quorum import held_by_majority
from rmq.raft.roles import State

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World


class Said:
    """All by store id. `promised`: the end of the log that a store claimed to hold. `claims`, and `contact` in seconds: the
    same by epoch, and when the leader last heard from the store."""

    def __init__(self, fail: Callable[[str], None], counts: Counter[str], world: "World") -> None:
        self.promised: dict[str, int] = {}
        self.claims: dict[tuple[int, str], int] = {}
        self.contact: dict[tuple[int, str], float] = {}
        self._votes: dict[tuple[str, int], str] = {}
        self._fetches: dict[str, m.Fetch] = {}  # the last one of each
        self._fail = fail
        self._counts = counts
        self._world = world

    def sends(self, node: "Node", request: m.Request) -> None:
        state, log = node.core.state, node.store.log
        name = state.me.store
        if isinstance(request, m.Fetch | m.Ack):
            held = log.durable_end if self._world.sync_flush else log.end
            if request.ack > held:
                self._fail(f"R7: {node.name} claims {request.ack} and holds {held}")
            self.promised[name] = max(self.promised.get(name, 0), request.ack)
            key = (request.epoch, name)
            self.claims[key] = max(self.claims.get(key, -1), request.ack)
        if isinstance(request, m.Fetch):
            self._fetches[name] = request
        elif isinstance(request, m.Vote) and not request.pre:
            self._voted(node, request.epoch, name)
            self._counts["candidacies"] += 1
        if node.store.vote.epoch < request.epoch and not (isinstance(request, m.Vote) and request.pre):
            self._fail(f"R8: {node.name}: epoch {request.epoch} left before it was saved")

    def answers(self, node: "Node", request: m.Request, answer: m.Answer) -> None:
        if node.store.vote.epoch < answer.epoch:
            self._fail(f"R8: {node.name}: epoch {answer.epoch} left before it was saved")
        if isinstance(answer, m.Diverged):
            self._counts["divergences"] += 1
        if isinstance(answer, m.FetchOk) and answer.epoch != request.epoch and not node.core.state.me.fixed:
            self._fail(f"R12: {node.name} answers {request}, of an older epoch, with bytes of {answer.epoch}")
        if not isinstance(answer, m.VoteAnswer) or not answer.granted or not isinstance(request, m.Vote):
            return
        history = node.core.state.epochs
        mine = (history[-1].epoch if history else 0, node.store.log.end)
        if (request.last_epoch, request.end) < mine:
            self._fail(f"R9: {node.name} has {mine} and granted {request}")
        if not request.pre:
            self._voted(node, request.epoch, request.store)

    def _voted(self, node: "Node", epoch: int, candidate: str) -> None:
        name = node.core.state.me.store
        before = self._votes.setdefault((name, epoch), candidate)
        if before != candidate:
            self._fail(f"R8: {node.name} votes for {candidate} in epoch {epoch}, before for {before}")

    def is_late(self, node: "Node", event: ev.PeerRequest | ev.PeerAnswer) -> bool:
        """Whether the message answers a fetch that is not the last one. Such an answer may have no effect (R16), except that
        it tells of a newer epoch (R12)."""
        if not isinstance(event, ev.PeerAnswer) or not isinstance(event.request, m.Fetch) or node.working:
            return False
        return event.request != self._fetches[node.core.state.me.store] and event.answer.epoch <= node.core.state.epoch

    def in_touch(self, state: State) -> float:
        """Returns the last moment at which a majority of the voters, this node counted, had sent in this epoch what has
        reached it."""
        contact, epoch, me = self.contact, state.epoch, state.me.store
        sent = [inf if one.store == me else contact.get((epoch, one.store), -inf) for one in state.voters]
        return held_by_majority(state.voters, sent)

    def hears(self, node: "Node", event: ev.PeerRequest | ev.PeerAnswer, sent: float) -> None:
        """Notes that a message has reached a node: its sender was in that epoch when it sent it."""
        if isinstance(event, ev.PeerRequest):
            if not isinstance(event.request, m.Fetch) or event.request.epoch != node.core.state.epoch:
                return
            key = event.request.epoch, event.request.store
        elif isinstance(event.answer, m.VoteAnswer) and isinstance(event.request, m.Vote):
            if not event.answer.granted or event.request.pre:
                return
            key = event.answer.epoch, event.answer.store
        else:
            return
        self.contact[key] = max(self.contact.get(key, -1.0), sent)
