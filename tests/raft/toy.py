"""Machines on toy logs: entries are tuples, messages wait in a list until a test delivers them, time moves by hand."""

import pickle
from collections.abc import Callable
from typing import NamedTuple

from rmq.model import EpochEntry, Voter
from rmq.raft import effects as fx, events as ev, messages as m
from rmq.raft.core import Core
from rmq.raft.identity import Identity, RestoredState, Timing

Voters = m.Voters
RECORD_BYTES = 10
RESTLESS = 10_000  # letters in one moment


class Entry(NamedTuple):
    start: int
    end: int
    epoch: int
    mark: ev.EpochMark | None


class Letter(NamedTuple):
    """A request (`answer` None) or an answer on its way from `source` to `to`."""

    source: str
    to: str
    request: m.Request
    answer: m.Answer | None


class Node:
    """One machine with its log. `effects`: all it ever wanted; `done`: results of administrative events."""

    def __init__(self, name: str, world: "World", store: str, lists: tuple[tuple[int, Voters], ...], proven: bool) -> None:
        self.name, self.world, self.store = name, world, store
        self.lists, self.proven = lists, proven
        self.log: list[Entry] = []
        self.durable = 0
        self.epoch, self.voted_for, self.incarnation = 0, "-", 0
        self.sync_flush = self.fixed = self.master = self.unclean = False
        self.in_sync = 1
        self.effects: list[fx.Effect] = []
        self.done: dict[object, str] = {}
        self.committed = 0
        self.batch = 2  # entries in one answer
        self.ends_turns = True  # else the test does
        self.takes_no_bytes: ev.Event | None = None  # what it reports where it should append another node's
        self.takes_no_epoch = False  # its disk is full
        self.boot()

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    def boot(self) -> None:
        self.incarnation += 1
        history: tuple[EpochEntry, ...] = ()
        lists = list(self.lists)
        for entry in self.log:
            if entry.mark is not None:
                if not history or entry.mark.entry.epoch > history[-1].epoch:
                    history = (*history, entry.mark.entry)
                lists.append((entry.start, entry.mark.voters))
        me = Identity(
            "g", self.name, self.store, self.incarnation, f"{self.name}:1", self.sync_flush, "",
            self.fixed, self.in_sync, self.master, self.unclean,
        )  # fmt: skip
        start = RestoredState(self.epoch, self.voted_for, self.proven, 0, self.end, 0, history, tuple(lists))
        self.core = Core(me, start, Timing(), self.world.chance, self.world.now)
        self.alive = True

    def feed(self, event: ev.Event) -> None:
        for effect in self.core.step(event, self.world.now):
            self.effects.append(effect)
            self.carry_out(effect)

    def carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.SaveVote():
                self.epoch, self.voted_for, self.proven = effect
            case fx.AppendEpoch() if self.takes_no_epoch:
                self.feed(ev.AppendFailed("no room"))
            case fx.AppendEpoch(entry, kind, voters, _):
                mark = ev.EpochMark(self.end, entry, kind, voters)
                self.append(Entry(self.end, self.end + RECORD_BYTES, self.epoch, mark))
            case fx.AppendBytes() if self.takes_no_bytes is not None:
                self.feed(self.takes_no_bytes)
            case fx.AppendBytes(at, data):
                assert at == self.end
                self.append(*pickle.loads(data))
            case fx.Cut(to):
                self.log = [entry for entry in self.log if entry.end <= to]
                assert self.end == to
            case fx.Send(node, request):
                self.world.post.append(Letter(self.name, node, request, None))
            case fx.Reply(ticket, answer) if ticket is not None:
                self.world.post.append(Letter(self.name, ticket[0], ticket[1], answer))
            case fx.ReplyBytes(ticket, answer):
                data = pickle.dumps([entry for entry in self.log if entry.start >= answer.from_][: self.batch])
                self.world.post.append(Letter(self.name, ticket[0], ticket[1], answer._replace(data=data)))
            case fx.AwaitTurnEnd() if self.ends_turns:
                self.feed(ev.TurnEnded())
            case fx.Commit(hw):
                self.committed = hw
            case fx.Done(ticket, refusal):
                self.done[ticket] = refusal
            case _:
                pass

    def append(self, *entries: Entry) -> None:
        self.log += entries
        self.feed(ev.Grown(self.end, tuple(entry.mark for entry in entries if entry.mark is not None)))

    def write(self, count: int = 1) -> None:
        """As the leader: so many records."""
        assert self.core.accepts()
        self.append(
            *(Entry(at, at + RECORD_BYTES, self.epoch, None) for at in range(self.end, self.end + RECORD_BYTES * count, 10))
        )

    def flush(self) -> None:
        self.feed(ev.Flushed(self.end))

    def stop(self) -> None:
        self.alive = False
        self.world.post = [letter for letter in self.world.post if self.name not in (letter.source, letter.to)]

    def start(self) -> None:
        self.boot()

    def of(self, kind: type) -> list[fx.Effect]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


class World:
    """`cut`: (source, to) pairs over which nothing goes."""

    def __init__(self, names: str = "abc", *, formed: bool = True, sync_flush: bool = False) -> None:
        self.now, self.turn = 100.0, 0.0
        self.post: list[Letter] = []
        self.cut: set[tuple[str, str]] = set()
        voters = tuple(Voter(name, f"s-{name}" if formed else "", f"{name}:1") for name in names)
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.add(name, ((-1, voters),), proven=formed, sync_flush=sync_flush)

    def add(self, name: str, lists: tuple[tuple[int, Voters], ...], proven: bool = False, sync_flush: bool = False) -> Node:
        node = self.nodes[name] = Node(name, self, f"s-{name}", lists, proven)
        if sync_flush:
            node.sync_flush = True
            node.incarnation = 0
            node.boot()
        return node

    @classmethod
    def fixed(cls, names: str = "ab", *, in_sync: int = 1) -> "World":
        """The first one is the master, the others know it."""
        world = cls(names)
        for name, node in world.nodes.items():
            node.fixed, node.master, node.in_sync = True, name == names[0], in_sync
            node.incarnation, node.lists = 0, ()
            node.boot()
            if not node.master:
                node.feed(ev.Follow(names[0]))
        return world

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def chance(self) -> float:
        self.turn = (self.turn + 0.37) % 1.0
        return self.turn

    def deliver(self, keep: Callable[[Letter], bool] = lambda letter: True) -> None:
        """Everything that is on its way, and what follows from it; letters that `keep` refuses stay."""
        held: list[Letter] = []
        handed = 0
        while self.post:
            handed += 1
            assert handed < RESTLESS, "each answer brings more than one question: they never rest (R16)"
            letter = self.post.pop(0)
            if not keep(letter):
                held.append(letter)
                continue
            self.hand(letter)
        self.post = held

    def hand(self, letter: Letter) -> None:
        node = self.nodes.get(letter.to)
        if node is None or not node.alive or (letter.source, letter.to) in self.cut:
            return
        if letter.answer is None:
            node.feed(ev.PeerRequest(letter.request, (letter.source, letter.request)))
        else:
            node.feed(ev.PeerAnswer(letter.source, letter.request, letter.answer))

    def tick(self, *names: str) -> None:
        for name in names or tuple(self.nodes):
            if self.nodes[name].alive:
                self.nodes[name].feed(ev.Tick())

    def run(self, seconds: float) -> None:
        """Time passes in small steps, letters are delivered at once."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.02
            self.tick()
            self.deliver()

    def isolate(self, *names: str) -> None:
        others = [name for name in self.nodes if name not in names]
        self.cut |= {(a, b) for a in names for b in others} | {(b, a) for a in names for b in others}

    def elect(self, name: str) -> Node:
        """That node stands now; the others find nothing against it."""
        node = self.nodes[name]
        for other in self.nodes.values():
            if other.alive and isinstance(other.core.leader, str):
                other.feed(ev.Unreachable(other.core.leader))
        for other in self.nodes.values():
            if other is not node and hasattr(other.core.role, "stand_at"):
                other.core.role.stand_at = self.now + 5
        assert hasattr(node.core.role, "stand_at")
        node.core.role.stand_at = self.now
        self.tick(name)
        self.deliver()
        assert node.core.leads(), node.core.role
        return node

    def leader(self) -> Node:
        leading = [node for node in self.nodes.values() if node.alive and node.core.leads()]
        return max(leading, key=lambda node: node.epoch)


def lead(world: World, name: str = "a", count: int = 0) -> None:
    """A leader that has written so much, with everybody in step."""
    world.elect(name).write(count)
    world.deliver()
    world.run(0.1)
