"""Seeded worlds of fixed roles: a master and its slaves, a nameserver that names one master, an operator who promotes slaves.
Nobody changes the nodes' configuration: an old master that comes back learns its new role from the nameserver.

Such a group may lose more than a group that elects its leader (docs/reliability), so it has a judge of its own. A leadership
is an epoch and the store that wrote it. It begins where the log of that store ended. If the leadership before it had shown
readers more, the new one must say that it is lossy, and there must be a reason: a slave was promoted, or a disk lost what was
not flushed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmq.log.files.epochs import EpochRecord
from rmq.model import EpochEntry, Voter
from rmq.raft import events as ev, messages as m
from rmq.raft.fixed import last_epoch_led
from rmq.raft.identity import Identity, Timing
from rmq.raft.roles import Leader, StartingMaster
from tests.sim.chain import Chain
from tests.sim.ending import check_end
from tests.sim.faults import Faults
from tests.sim.judge import Judge
from tests.sim.node import Node
from tests.sim.world import World

Key = tuple[int, str]  # epoch and writer: a leadership


@dataclass
class Leadership:
    """`hw`: up to where it committed. `shown`: up to where its readers may have read, less what a later leadership declared
    lost."""

    hw: int
    shown: int


class FixedJudge(Judge):
    """The rules of logs and votes are those of `Judge`. Leaderships come by configuration or by promotion, not by election."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.by_hand = 0  # promotions and hand-overs: two may lead at once then
        self._leaderships: dict[Key, Leadership] = {}
        self._acked: dict[int, tuple[int, Key]] = {}  # number of the send -> end, leadership
        self._everywhere: set[int] = set()  # acknowledged by each node

    def _was_committed(self, node: Node) -> bool:
        return self._hw_is_known(node, node.core.state.hw)

    def _hw_is_known(self, node: Node, hw: int) -> bool:
        """Whether the bytes below `hw` are committed: by the leadership that wrote the last of them, or by a later one that
        took its log over."""
        history = [entry for entry in node.core.state.epochs if entry.start < hw]
        key = (history[-1].epoch, history[-1].writer) if history else (0, "")
        return not history or any(
            leadership.hw >= hw for one, leadership in self._leaderships.items() if one == key or one[0] > key[0]
        )

    def _committed(self, node: Node, chain: Chain, before: int, hw: int) -> None:
        state = node.core.state
        if isinstance(node.core.role, Leader):
            leadership = self._leaderships[state.epoch, state.me.store]
            leadership.hw = leadership.shown = hw
            own = node.store.log.durable_end if self.world.sync_flush else node.store.log.end
            self.check(hw <= own, "R7", f"{node.name} commits up to {hw}, but holds only {own}")
            self.counts["commits"] += 1
        else:
            self.check(
                self._hw_is_known(node, hw),
                "R6",
                f"{node.name} takes {hw} for committed, but nobody committed so far",
            )

    def opens(self, node: Node, found: EpochRecord) -> None:
        state, log = node.core.state, node.store.log
        key = found.epoch, state.me.store
        self.check(key not in self._leaderships, "R1", f"{node.name} opens epoch {found.epoch} twice")
        self.check(found.start == log.end, "R13", f"{node.name} writes {found}, but its log ends at {log.end}")
        self.counts["leaderships"] += 1
        history = [entry for entry in state.epochs if entry.epoch != found.epoch]
        leaderships = self._leaderships_before(state.me.store, history)
        shown = max((leadership.shown for leadership in leaderships), default=0)
        opens = f"{node.name} opens epoch {found.epoch} at {found.start}"
        if shown > found.start:
            self.counts["leaderships that lost something"] += 1
            self.check(
                found.lossy,
                "9.7",
                f"{opens}, not lossy, but readers saw {shown}",
            )
            excused = self.by_hand or state.me.store in self.tainted
            self.check(
                bool(excused),
                "D1",
                f"{opens} without a reason, but readers saw {shown}",
            )
            for leadership in leaderships:
                leadership.shown = min(leadership.shown, found.start)
        self._leaderships[key] = Leadership(found.start, found.start)

    def _leaderships_before(self, store: str, history: Sequence[EpochEntry]) -> list[Leadership]:
        """Returns the leadership that wrote the end of the log. If a disk lost what it had, also all leaderships of this store
        that no later one declared lost.

        When two masters write at the same time, not everything can stay, so a leadership that had to give way is left out.
        """
        keys = [(entry.epoch, entry.writer) for entry in history]
        before = keys[-1:]
        if store in self.tainted or not self.by_hand:
            given_up = max((entry.epoch for entry in history if entry.lossy), default=-1)
            before += [key for key in self._leaderships if key[1] == store and (key in keys or key[0] > given_up)]
        return [self._leaderships[key] for key in before if key in self._leaderships]

    def acked(self, node: Node, number: int, end: int) -> None:
        state = node.core.state
        key = state.epoch, state.me.store
        self.check(isinstance(node.core.role, Leader), "R11", f"{node.name} acknowledges send {number}, but does not lead")
        self.check(end <= self._leaderships[key].hw, "R6", f"{node.name} acknowledges send {number}, not committed yet")
        if state.me.in_sync > 1:
            held = sum(self.said.claims.get((state.epoch, other.core.state.me.store), -1) >= end for other in self._others(node))
            self.check(held + 1 >= state.me.in_sync, "R7", f"{node.name} acknowledges send {number}; {held} slaves have it")
        self._acked[number] = end, key
        if state.me.in_sync == len(self.world.nodes):
            self._everywhere.add(number)
        self.counts["acknowledged"] += 1

    def _others(self, node: Node) -> list[Node]:
        return [other for other in self.world.nodes.values() if other is not node and other.run]

    def reads(self, node: Node) -> None:
        """A fixed master may serve everything that it has."""

    def ticked(self, node: Node) -> None:
        """A fixed master needs no majority."""

    def settle(self, master: Node) -> None:
        """The log of the last master counts. C1: a send that is missing was declared lost, or an operator gave it up. One that
        each node had acknowledged is not lost as long as a node never lost power: the master takes it back from there."""
        safe = not self.by_hand and not all(node.disk.lost_power for node in self.world.nodes.values())
        chain = self._chains[master.core.state.me.store]
        self.truth, self.truth_from = bytearray(chain.base) + chain.data, chain.base
        history: tuple[EpochEntry, ...] = master.core.state.epochs
        lineage = {(entry.epoch, entry.writer) for entry in history}
        ends = set(chain.ends)
        for number, (end, leadership) in self._acked.items():
            if end <= master.store.log.start or (end in ends and leadership in lineage):
                continue
            given_up = any(entry.lossy and entry.start < end for entry in history) or (leadership not in lineage and self.by_hand)
            self.check(
                bool(given_up) and not (safe and number in self._everywhere),
                "C1",
                f"send {number} is gone, which ended at {end} in {leadership}: {history}",
            )
            self.counts["acknowledged and given up"] += 1


class FixedFaults(Faults):
    """An operator promotes slaves, mostly when the master is gone. No node joins, leaves, or gets a new disk."""

    def kinds(self) -> list[Callable[[], None]]:
        return [
            self.kill, self.lose_power, self.stop_in_an_operation, self.pause, self.partition, self.one_way, self.new_weather,
            self.stall, self.move_clock, self.hand_over, self.fill_disk, self.write_back, self.promote,
        ]  # fmt: skip

    def promote(self) -> None:
        assert isinstance(self.world, FixedWorld)
        leader = self._leader()
        if leader is None or self.world.chance.random() < 0.5:
            self.world.promote(self._some())

    def hand_over(self) -> None:
        if leader := self._leader():
            self.judge_by_hand()
            leader.do(lambda: leader.member.handle(ev.Transfer("", "transfer")))

    def judge_by_hand(self) -> None:
        judge = self.world.judge
        assert isinstance(judge, FixedJudge)
        judge.by_hand += 1


class FixedWorld(World):
    """`named`: the newest epoch that the nameserver heard of, and the master that it names ("": there is none)."""

    judge: FixedJudge

    def __init__(self, seed: int, seconds: float = 20.0) -> None:
        super().__init__(seed, seconds)
        chance = self.chance
        self.timing = Timing(master_catch_up=chance.choice((1.0, 5.0)))
        self.judge = FixedJudge(self)
        self.faults = FixedFaults(self)
        names = "abc"[: chance.choice((2, 2, 3))]
        self.retention = True  # whoever had shown more than the new master has begins anew from a snapshot
        self.in_sync = chance.choice((1, 1, 2, len(names)))
        self.first, self.named = names, (0, "a")
        self.nodes = {name: Node(self, name, (Voter(name, "", f"{name}:1"),)) for name in names}
        self.schedule(0.1, self.look_at_names)

    def identity(self, node: Node) -> Identity:
        vote, master = node.store.vote, node.name == "a"
        self.schedule(0.0, lambda: self.tell(node))  # the first thing that a node does
        return Identity(
            "g",
            node.name,
            vote.store_id,
            vote.incarnation,
            f"{node.name}:1",
            self.sync_flush,
            fixed=True,
            in_sync=self.in_sync if master else 1,
            master=master,
        )

    def look_at_names(self) -> None:
        """The nameserver keeps the larger epoch, and of equal ones the first. It does not name a node that is gone or is a
        slave now."""
        up = [node for node in self.nodes.values() if node.up and not node.paused]
        masters = [node for node in up if isinstance(node.core.role, Leader | StartingMaster)]
        epoch, name = self.named
        if name and (not self.nodes[name].up or (self.nodes[name] in up and self.nodes[name] not in masters)):
            name = ""
        for node in masters:
            vote = node.store.vote
            found = node.core.state.epoch if node.core.leads() else last_epoch_led(node.core.state, vote.epoch, vote.voted_for)
            if found > epoch or (found == epoch and name in ("", node.name)):
                epoch, name = found, node.name
        self.named = epoch, name
        nobody = not name and not any(isinstance(node.core.role, Leader) for node in masters)
        if nobody and not self.faults.active:
            self.promote(max(up, key=lambda node: (node.core.state.epochs[-1:], node.store.log.end), default=None))
        for node in up:
            self.tell(node)
        self.schedule(1.0, self.look_at_names)

    def tell(self, node: Node) -> None:
        epoch, name = self.named
        node.do(lambda: node.member.handle(ev.Follow(name, epoch)))

    def promote(self, node: Node | None) -> None:
        if node is None or node.paused or not node.up:
            return
        self.judge.by_hand += 1
        self.judge.counts["promotions"] += 1
        node.do(lambda: node.member.handle(ev.Promote("promote")))

    def voters(self) -> m.Voters:
        return ()

    def members(self) -> list[Node]:
        return list(self.nodes.values())

    def is_one(self) -> bool:
        nodes = self.members()
        if not all(node.up and not node.paused and not node.working for node in nodes):
            return False
        leaders = [node for node in nodes if node.core.leads()]
        if [node.name for node in leaders] != [self.named[1]]:
            return False
        end, last = leaders[0].store.log.end, leaders[0].core.state.epochs[-1:]
        return all(
            node.core.state.epochs[-1:] == last
            and node.store.dispatcher.position == node.store.log.end == node.core.state.hw == end
            and node.core.state.ready
            for node in nodes
        )

    def finish(self) -> None:
        if not self.is_one():
            self.judge.fail(f"L1: the nodes are not one group: {self.named}, {[str(node) for node in self.nodes.values()]}")
        self.judge.settle(self.nodes[self.named[1]])
        check_end(self.judge, self.members())


def world_of(seed: int, seconds: float) -> World:
    """One seed in five has fixed roles."""
    return FixedWorld(seed, seconds) if seed % 5 == 4 else World(seed, seconds)
