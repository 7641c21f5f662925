"""One seeded world: nodes, network, producers, faults, and time that jumps from event to event."""

import heapq
import zlib
from collections.abc import Callable
from random import Random

import msgpack

from rmq.model import STATE_TOPIC, Voter
from rmq.raft import messages as m
from rmq.raft.identity import Identity, Timing
from tests.sim.ending import check_end
from tests.sim.faults import Faults
from tests.sim.judge import Judge
from tests.sim.network import Network
from tests.sim.node import Node

HEAL_S = 40.0  # in which a healed group must be one again


def _has_list_for_good(node: Node) -> bool:
    """Whether the newest list of voters that this node has outlives its power."""
    return not node.run or node.core.state.lists[-1][0] < node.store.log.durable_end


class World:
    """`run` plays it: faults for `seconds`, then all is healed and drained, then come the last checks."""

    def __init__(self, seed: int, seconds: float = 20.0) -> None:
        self.seed = seed
        self.seconds = seconds
        self.chance = chance = Random(seed)
        self.now = 0.0
        self.events = 0
        self.digest = 0
        self.timing = Timing(preferred=3.0)
        self.sync_flush = chance.random() < 0.5
        self.resets = chance.random() < 0.7  # a killed process's connections are reset, and new ones refused
        self.retention = chance.random() < 0.6
        count = chance.choice((1, 2, 3, 3, 3, 3, 5, 5))
        names = "abcde"[:count]
        self.preferred = chance.choice(("", "a"))
        peers = tuple(Voter(name, "", f"{name}:1") for name in names)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self.network = Network(chance, self.schedule, lambda: self.now)
        self.judge = Judge(self)
        self.nodes = {name: Node(self, name, peers if name in names else ()) for name in "abcde"[: min(count + 1, 5)]}
        self.faults = Faults(self)
        self.first = names
        self._sends = 0
        self._send_gap_s = chance.choice((0.005, 0.02, 0.1))
        self._largest = chance.choice((20, 200, 1500))
        self._producing = True
        self.deletes = False  # topics, and makes them again; also pops
        self.late_s = chance.choice((0.0, 0.001, 0.01, 0.1))  # how long a thread takes to save a vote or cut a log

    def identity(self, node: Node) -> Identity:
        vote = node.store.vote
        return Identity("g", node.name, vote.store_id, vote.incarnation, f"{node.name}:1", self.sync_flush, self.preferred)

    # --- time ---------------------------------------------------------------------------------------------------------

    def schedule(self, after: float, action: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._heap, (self.now + after, self._scheduled, action))

    def trace(self, *what: object) -> None:
        """Adds an event to the digest of the event list (G2)."""
        self.digest = zlib.crc32(f"{self.now:.9f} {what}".encode(), self.digest)

    def trace_letter(self, source: str, to: str, letter: m.Request | m.Answer) -> None:
        self.digest = zlib.crc32(f"{self.now:.9f} {source} {to} {letter.epoch} {type(letter).__name__}".encode(), self.digest)

    def play(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        while self._heap and self._heap[0][0] <= until and not done():
            self.now, _, action = heapq.heappop(self._heap)
            self.events += 1
            action()
        self.now = max(self.now, until) if not done() else self.now

    # --- playing ------------------------------------------------------------------------------------------------------

    def run(self) -> "World":
        self.deletes = True
        for name in self.first:
            self.nodes[name].boot()
        self.play(4.0)
        self.produce()
        self.faults.begin()
        self.play(4.0 + self.seconds)
        self.faults.heal()
        self.play(self.now + 3.0)
        self._producing = False
        self.play(self.now + HEAL_S, self.is_one)
        self.finish()
        return self

    def produce(self) -> None:
        """Sends messages to every node that takes them: a node that no longer leads may not know it yet."""
        if not self._producing:
            return
        chance = self.chance
        for node in self.nodes.values():
            if node.up and not node.paused and node.core.accepts():
                bodies = []
                for _ in range(chance.choice((1, 1, 3, 8))):
                    self._sends += 1
                    bodies.append(self._message(self._sends))
                there = node.holding.tables.topics.committed()
                bodies = [one for one in bodies if one[1] in there or one[1] == STATE_TOPIC or not self.deletes]
                node.do(lambda node=node, bodies=bodies: node.produce(bodies))  # type: ignore[misc]
        self.schedule(chance.expovariate(1 / self._send_gap_s), self.produce)

    def _message(self, number: int) -> tuple[int, str, int, bytes]:
        chance = self.chance
        if chance.random() < 0.1:
            return number, STATE_TOPIC, 0, msgpack.packb([["kv", f"k{chance.randrange(8)}", number]])
        body = b"%d." % number + b"x" * chance.randrange(self._largest)
        return number, chance.choice("TTTTTUUUUUDDX"), chance.randrange(3), body

    # --- the end ------------------------------------------------------------------------------------------------------

    def voters(self) -> m.Voters:
        """Returns the voters that the newest leader knows."""
        leading = [node for node in self.nodes.values() if node.up and node.core.leads()]
        if not leading:
            up = [node for node in self.nodes.values() if node.up]
            return up[0].core.state.voters if up else ()
        return max(leading, key=lambda node: node.core.state.epoch).core.state.voters

    def members(self) -> list[Node]:
        names = {voter.node for voter in self.voters()}
        return [node for node in self.nodes.values() if node.name in names]

    def disks_are_whole(self) -> bool:
        """Whether the disk of each voter is still there, by the newest list and by the committed one, since a change may be cut.
        Where disks were replaced, no node may lose the newest list either: the one before names a disk that is gone.

        A group that has lost a disk and then loses power waits for an operator."""
        stores = {node.disk.store() for node in self.nodes.values()}
        whole = all(voter.store in stores for voter in (*self.voters(), *self.judge.voters))
        return whole and (not self.judge.counts["new disks"] or all(map(_has_list_for_good, self.nodes.values())))

    def is_one(self) -> bool:
        """L1: there is one leader, all nodes have everything, and everything is committed and served."""
        members = self.members()
        if not members or not all(node.up and not node.paused and not node.working for node in members):
            return False
        leaders = [node for node in members if node.core.leads()]
        stores = {node.core.state.me.store for node in members}
        if len(leaders) != 1 or len(self.voters()) != len(members) or {voter.store for voter in self.voters()} != stores:
            return False
        end = leaders[0].store.log.end
        return all(
            node.store.dispatcher.position == node.store.log.end == node.core.state.hw == end
            and node.core.state.proven
            and node.core.state.ready
            for node in members
        )

    def finish(self) -> None:
        """Waits until the healed group is one again and everything is committed, then compares the nodes (L1, G5)."""
        if not self.is_one():
            self.judge.fail(f"L1: no group again after {HEAL_S:.0f} s: {[str(node) for node in self.nodes.values()]}")
        check_end(self.judge, self.members())
