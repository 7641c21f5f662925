"""A world without random faults, for stories: a test says which node stops or is cut off, and waits for what must follow."""

from collections.abc import Callable

from rmq.model import Voter
from tests.sim.network import CALM
from tests.sim.node import Node
from tests.sim.world import World


class Stage(World):
    """The judge checks everything here, too."""

    def __init__(self, names: str = "abc", *, sync_flush: bool = False) -> None:
        super().__init__(1)
        self.sync_flush, self.resets, self.retention, self.preferred, self.late_s = sync_flush, True, False, "", 0.0
        self.faults.active = False
        self.network.weather = CALM
        peers = tuple(Voter(name, "", f"{name}:1") for name in names)
        self.nodes = {name: Node(self, name, peers) for name in names}
        for node in self.nodes.values():
            node.boot()
        self.until(lambda: self.leading() is not None and all(node.core.state.proven for node in self.nodes.values()))

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def leading(self) -> Node | None:
        leading = [node for node in self.nodes.values() if node.up and not node.paused and node.core.leads()]
        return max(leading, key=lambda node: node.core.state.epoch, default=None)

    @property
    def leader(self) -> Node:
        found = self.leading()
        assert found is not None
        return found

    @property
    def others(self) -> list[Node]:
        """All nodes but the leader."""
        return [node for node in self.nodes.values() if node is not self.leader]

    def pass_time(self, seconds: float) -> None:
        self.play(self.now + seconds)

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        self.play(self.now + seconds, condition)
        assert condition(), [str(node) for node in self.nodes.values()]

    def settle(self) -> None:
        self.until(self.is_one)

    def write(self, count: int = 1, size: int = 100, topic: str = "T", queue_id: int = 0, node: Node | None = None) -> None:
        writer = node or self.leader
        for _ in range(count):
            self._sends += 1
            body = b"%d." % self._sends + b"x" * size
            writer.do(lambda body=body: writer.produce([(self._sends, topic, queue_id, body)]))  # type: ignore[misc]

    def kill(self, node: Node) -> None:
        node.down()

    def lose_power(self, node: Node, torn: float = 0.0) -> None:
        store = node.core.state.me.store
        node.down()
        node.disk.crash(lambda: self.chance.random() < torn)
        if not self.sync_flush:
            self.judge.tainted.add(store)

    def isolate(self, *nodes: Node) -> None:
        inside = {node.name for node in nodes}
        self.network.cut |= {pair for a in inside for b in self.nodes if b not in inside for pair in ((a, b), (b, a))}

    def mend(self) -> None:
        self.network.cut.clear()

    def end(self) -> None:
        """Heals all faults, waits until everything is committed everywhere, and compares the nodes."""
        self.mend()
        for node in self.nodes.values():
            if not node.up:
                node.boot()
        self.settle()
        self.finish()
