"""What goes wrong in one world: each seed picks kinds of faults and their rates (a swarm), so that rare mixtures are tried
too."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq.log.files.memory import PowerLoss
from rmq.raft import events as ev
from rmq.raft.roles import Leader
from tests.sim.network import CALM, Weather
from tests.sim.node import Disk, Node

if TYPE_CHECKING:
    from tests.sim.world import World


class Faults:
    """`begin` starts the faults, `heal` ends them all."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.active = True
        chance = world.chance
        self.rates = {kind: chance.choice((0.05, 0.2, 0.6)) for kind in self.kinds() if chance.random() < 0.5}
        self.snipe = chance.choice((0.0, 0.0, 0.3, 0.9))
        self.torn = chance.choice((0.0, 0.2, 0.5, 0.9))

    def kinds(self) -> list[Callable[[], None]]:
        return [
            self.kill, self.lose_power, self.stop_in_an_operation, self.pause, self.partition, self.one_way, self.new_weather,
            self.stall, self.move_clock, self.new_disk, self.join, self.leave, self.hand_over, self.fill_disk, self.write_back,
        ]  # fmt: skip

    def begin(self) -> None:
        for kind, rate in self.rates.items():
            self._repeat(kind, rate)

    def _repeat(self, kind: Callable[[], None], rate: float) -> None:
        def act() -> None:
            if self.active:
                kind()
                self._repeat(kind, rate)

        self.world.schedule(self.world.chance.expovariate(rate), act)

    def heal(self) -> None:
        """Everything works from now on; nodes that are down come back."""
        world = self.world
        self.active = False
        world.network.cut.clear()
        world.network.weather = CALM
        world.network.stalled.clear()
        for node in world.nodes.values():
            node.disk.before = lambda operation, path: None
            if node.disk_full:
                self.empty_disk_of(node)
            if node.paused:
                self._wake(node)
            if not node.up and node.run:
                self._boot(node)

    # --- stops --------------------------------------------------------------------------------------------------------

    def _some(self, up: bool = True) -> Node | None:
        nodes = [node for node in self.world.nodes.values() if node.up is up and node.run]
        return self.world.chance.choice(nodes) if nodes else None

    def _stop(self, node: Node, lose: bool) -> None:
        world = self.world
        store = node.core.state.me.store
        lose = lose and world.disks_are_whole()
        world.trace("stop", node.name, lose)
        node.down()
        if lose:
            world.judge.counts["power losses"] += 1
            if not world.sync_flush:
                world.judge.tainted.add(store)
            node.disk.crash(lambda: world.chance.random() < self.torn)
        elif world.resets:
            for other in world.nodes.values():
                if other is not node and world.network.open(node.name, other.name):
                    world.schedule(0.001, lambda other=other: other.do(lambda: other.member.handle(ev.Unreachable(node.name))))  # type: ignore[misc]
        world.schedule(world.chance.choice((0.01, 0.5, 3.0)) * world.chance.random() + 0.01, lambda: self._boot(node))

    def _boot(self, node: Node) -> None:
        if node.up:
            return
        self.world.trace("boot", node.name)
        try:
            node.boot()
        except PowerLoss:
            node.up = False
            if self.world.disks_are_whole():
                node.disk.crash(lambda: self.world.chance.random() < self.torn)
            else:
                node.disk.kill()
            self.world.schedule(0.1, lambda: self._boot(node))
        if node.disk_full and node.up:
            self.fill_disk_of(node)

    def power_loss(self, node: Node) -> None:
        """A node loses power in the middle of a disk operation."""
        self.world.judge.counts["stops in an operation"] += 1
        self._stop(node, lose=True)

    def kill(self) -> None:
        if node := self._some():
            self.kill_one(node)

    def kill_one(self, node: Node) -> None:
        self._stop(node, lose=False)

    def lose_power(self) -> None:
        nodes = [node for node in self.world.nodes.values() if node.up]
        count = self.world.chance.choice((1, 1, 1, len(nodes)))
        for node in self.world.chance.sample(nodes, min(count, len(nodes))):
            self._stop(node, lose=True)

    def stop_in_an_operation(self) -> None:
        """The node stops before its n-th disk operation from now on."""
        node = self._some()
        if node is None or node.disk_full:
            return
        left = self.world.chance.randrange(1, 60)

        def before(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise PowerLoss

        node.disk.before = before

    def _some_or_leader(self) -> Node | None:
        return (self._leader() if self.world.chance.random() < 0.5 else None) or self._some()

    def pause(self) -> None:
        node = self._some_or_leader()
        if node is None or node.paused:
            return
        node.paused = True
        self.world.trace("pause", node.name)
        self.world.judge.counts["pauses"] += 1
        run = node.run
        after = self.world.chance.choice((0.3, 1.0, 5.0)) * self.world.chance.random()
        self.world.schedule(after, lambda: self._wake(node) if node.run == run else None)

    def _wake(self, node: Node) -> None:
        """The node first reads what came while it was paused; then its timers see the time."""
        if not node.paused:
            return
        node.paused = False
        waiting, node.waiting = node.waiting, []
        for action in waiting:
            node.do(action)

    def leader_made(self, node: Node) -> None:
        """New leaders are hit by faults more often than others."""
        world = self.world
        if self.active and world.chance.random() < self.snipe:
            run, lose = node.run, world.chance.random() < 0.3
            world.judge.counts["leaders sniped"] += 1
            after = world.chance.choice((0.0005, 0.01, 0.2)) * world.chance.random()
            world.schedule(after, lambda: self._stop(node, lose) if node.up and node.run == run else None)

    # --- network ------------------------------------------------------------------------------------------------------

    def _cut(self, pairs: set[tuple[str, str]]) -> None:
        network, chance = self.world.network, self.world.chance
        network.cut |= pairs
        self.world.judge.counts["cuts of the network"] += 1

        def mend() -> None:
            network.cut -= pairs

        self.world.schedule(chance.choice((0.3, 2.0, 6.0)) * chance.random(), mend)

    def partition(self) -> None:
        names = list(self.world.nodes)
        side = self.world.chance.sample(names, self.world.chance.randrange(1, len(names)))
        other = [name for name in names if name not in side]
        self._cut({pair for a in side for b in other for pair in ((a, b), (b, a))})

    def one_way(self) -> None:
        names = list(self.world.nodes)
        one = self.world.chance.choice(names)
        pairs = [(one, name) for name in names if name != one]
        self._cut({pair if self.world.chance.random() < 0.5 else pair[::-1] for pair in pairs})

    def stall(self) -> None:
        """Messages to one node wait in the network, and then come all at once."""
        if node := self._some_or_leader():
            self.world.judge.counts["stalls"] += 1
            self.world.network.stalled[node.name] = self.world.now + self.world.chance.uniform(0.3, 3.0)

    def new_weather(self) -> None:
        chance = self.world.chance
        self.world.network.weather = Weather(
            chance.choice((0.0, 0.01, 0.2)),
            chance.choice((0.0, 0.05, 0.3)),
            chance.choice((0.0005, 0.005, 0.05)),
            chance.choice((0.0, 0.02, 0.2)),
            chance.choice((0.1, 1.0, 5.0)),
        )

    # --- clocks, disks, members ---------------------------------------------------------------------------------------

    def move_clock(self) -> None:
        """T1: only the wall clock may jump."""
        if node := self._some():
            node.wall_offset_ms += self.world.chance.choice((-3_600_000, 3_600_000, -315_000_000_000, 50, -50))

    def new_disk(self) -> None:
        """As long as all others keep what they promised, durably so, and the last new disk is a voter. Nobody is so far behind
        that it must begin anew: that gives a whole disk away, and a group that lost two waits for an operator."""
        world = self.world
        nodes, voters = world.members(), world.voters()
        proven = all(node.up and node.store.vote.proven and node.core.state.voters == voters for node in nodes)
        whole = proven and len(nodes) == len(voters) >= 3
        if not whole or world.judge.tainted & {voter.store for voter in voters}:
            return
        if min(node.store.log.end for node in nodes) < max(node.store.log.start for node in nodes):
            return
        if any(node.core.state.me.store not in {voter.store for voter in voters} for node in nodes):
            return
        leader = self._leader()
        if leader is None or not isinstance(leader.core.role, Leader) or leader.core.role.leaving or leader.core.role.change:
            return
        node, judge = world.chance.choice(nodes), world.judge
        if node.up:
            node.down()
        node.disks += 1
        node.disk = Disk(f"{node.name}{node.disks}")
        node.disk_full = False
        self.world.trace("new disk", node.name)
        judge.counts["new disks"] += 1
        self.world.schedule(0.2, lambda: self._boot(node))

    def write_back(self) -> None:
        if node := self._some():
            node.disk.write_back()

    def _leader(self) -> Node | None:
        return next((node for node in self.world.nodes.values() if node.up and not node.paused and node.core.leads()), None)

    def join(self) -> None:
        leader = self._leader()
        voters = {voter.node for voter in self.world.voters()}
        spare = [node for node in self.world.nodes.values() if node.name not in voters]
        if leader is None or not spare or len(voters) >= 5:
            return
        node = self.world.chance.choice(spare)
        if not node.run:
            self._boot(node)
        leader.do(lambda: leader.member.handle(ev.Join(node.name, f"{node.name}:1", "join")))

    def leave(self) -> None:
        leader = self._leader()
        voters = [voter.node for voter in self.world.voters()]
        if leader is not None and len(voters) > 2 and self.world.disks_are_whole():
            gone = self.world.chance.choice(voters)
            leader.do(lambda: leader.member.handle(ev.Leave(gone, "leave")))

    def hand_over(self) -> None:
        if leader := self._leader():
            leader.do(lambda: leader.member.handle(ev.Transfer("", "transfer")))

    def fill_disk(self) -> None:
        node = self._some()
        if node is None or node.disk_full:
            return
        node.disk_full = True
        self.fill_disk_of(node)
        self.world.judge.counts["full disks"] += 1
        self.world.schedule(self.world.chance.uniform(0.5, 5.0), lambda: self.empty_disk_of(node))

    def fill_disk_of(self, node: Node) -> None:
        def before(operation: str, path: str) -> None:
            if operation == "allocate":  # the log's files have their room: it shows when the next one is needed
                raise OSError(28, "no space left", path)

        node.disk.before = before
        node.do(lambda: node.member.handle(ev.Health(disk_full=True)))

    def empty_disk_of(self, node: Node) -> None:
        if node.disk_full:
            node.disk_full = False
            node.disk.before = lambda operation, path: None
            node.do(lambda: node.member.handle(ev.Health()))
