"""One node of the simulation: a real store on a disk that forgets, a real member; the shell around it is simulated."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgpack

from rmq.broker.replication.member import Member
from rmq.errors import Refusal, StoreError
from rmq.log.files.epochs import EpochEntry, EpochHistory, EpochRecord, Voter
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.files.smallfile import write_file
from rmq.log.files.snapshot import EPOCHS, RECEIVED, VOTERS
from rmq.log.records import record
from rmq.log.records.checking import check
from rmq.log.replay import replay
from rmq.log.replicated import FoundEpoch, ReplicatedLog
from rmq.log.settings import ASYNC_FLUSH, SYNC_FLUSH
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC
from rmq.raft import effects as fx, events as ev, messages as m
from tests.sim.holding import Holding
from tests.sim.saving import STATE, Saving

if TYPE_CHECKING:
    from tests.sim.world import World

ROOT = "/s"
DISPATCH_BYTES = 1000  # in one turn: a few records
HOST = record.host_bytes("127.0.0.1", 10911)
WAITS = {"D": {"DELAY": "1"}, "X": {"TRAN_MSG": "true", "PGROUP": "p"}}  # what messages of these topics wait for
Ticket = tuple[str, int, m.Request]  # who asked, in which run, what


class Disk(MemoryDisk):
    """Its random bytes are its name, and it keeps no list of operations. `lost_power`: at least once."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.lost_power = False

    def crash(self, survives: Callable[[], bool]) -> None:
        self.lost_power = True
        super().crash(survives)

    def _change(self, operation: str, path: str) -> None:
        self.before(operation, path)

    def random_bytes(self, count: int) -> bytes:
        return self.name.encode().rjust(count, b".")[-count:]

    def store(self) -> str:
        """The id of the store on its disk."""
        return self.random_bytes(8).hex()


class Watched(ReplicatedLog):
    """Tells the judge when a log is cut, reset, or opened for an epoch."""

    def __init__(self, node: "Node", store: Store) -> None:
        super().__init__(store, node.disk, ROOT)
        self._node = node

    def cut(self, to: int, history: EpochHistory, keep: bool) -> None:
        self._node.world.judge.cuts(self._node, to)
        super().cut(to, history, keep)

    def append_epoch(self, found: EpochRecord, wall_ms: int) -> FoundEpoch:
        self._node.world.judge.opens(self._node, found)
        return super().append_epoch(found, wall_ms)

    def reset(self, log_start: int, history: EpochHistory, voters: tuple[Voter, ...], place: Callable[[], None]) -> None:
        super().reset(log_start, history, voters, place)
        self._node.world.judge.log_was_reset(self._node, log_start)


class Node:
    """`up`: its process runs. `run`: the number of the process. A paused node gets what came meanwhile when it wakes."""

    def __init__(self, world: "World", name: str, peers: m.Voters) -> None:
        self.world = world
        self.name = name
        self.peers = peers
        self.disk = Disk(f"{name}0")
        self.disks = 1
        self.run = 0
        self.up = False
        self.paused = False
        self.waiting: list[Callable[[], None]] = []
        self.clock_base = world.chance.uniform(10, 1e6)
        self.wall_offset_ms = 0
        self.working = False  # a vote is being saved or a log cut, in another thread
        self.disk_full = False
        self.tables: dict[str, int] = {}
        self.parked: list[tuple[int, int]] = []  # committed, not answered yet: number of the send, end
        self.replicated_to = math.inf

    def __str__(self) -> str:
        if not self.up:
            return f"{self.name} down"
        core, state = self.core, self.core.state
        voters = [(voter.node, voter.store[-2:]) for voter in state.voters]
        newest = [entry[:2] for entry in state.epochs[-2:]]
        return (
            f"{self.name}/{state.me.store[-2:]} {type(core.role).__name__} epoch {state.epoch} {newest} "
            f"end {state.end} hw {state.hw} proven {state.proven} ready {state.ready} installing {state.installing} {voters}"
        )

    @property
    def applied(self) -> int:
        """The offset below which its tables and queues hold everything."""
        return self.store.dispatcher.position

    # --- life ---------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        world = self.world
        self.run += 1
        mode = SYNC_FLUSH if world.sync_flush else ASYNC_FLUSH
        settings = StoreSettings(HOST, 8192, mode, "g", self.name, 50, alone=False)
        self.store = Store.open(self.disk, ROOT, settings)
        self.watched = Watched(self, self.store)
        me = world.identity(self)
        self.replicated_to = 0 if me.in_sync > 1 else math.inf
        self.load_tables()
        self.up, self.paused, self.working = True, False, False
        self.waiting.clear()
        self.parked.clear()
        few = () if world.seed % 2 == 0 else (DISPATCH_BYTES,)  # other seeds dispatch a part at a time
        self.member = Member(self.watched, me, self.peers, world.timing, self, *few)
        self.core = self.member.core
        world.judge.booted(self)
        self.later(0.001, self.tick)
        self.saving = Saving(self)

    def down(self) -> None:
        """Ends the process; what it wrote is still in the page cache."""
        self.up = False
        self.world.judge.died(self)
        self.disk.kill()

    def load_tables(self) -> None:
        self.tables = {}
        self.holding = Holding(self)
        for section, rows in self.store.snapshots.rows():
            if section == STATE:
                self.tables.update(dict(rows))
            self.holding.load(section, rows)
        for found in replay(self.store):
            if found.topic == STATE_TOPIC:
                self.apply(found.body, found.physical_offset)
            else:
                self.holding.notes.note(found)

    def apply(self, body: bytes, offset: int) -> None:
        for table, key, value in msgpack.unpackb(body):
            if table == STATE:
                self.tables[key] = value
            else:
                self.holding.tables.apply([(table, key, value)], 0, offset)

    def stored(self, offset: int) -> record.Record:
        """Returns the record at that place."""
        return record.decode(self.store.log.read(offset, int.from_bytes(self.store.log.read(offset, 4), "big")))

    # --- events -------------------------------------------------------------------------------------------------------

    def later(self, after: float, action: Callable[[], None]) -> None:
        """Calls it later, unless the process has ended by then."""
        run = self.run

        def act() -> None:
            if self.run == run:
                self.do(action)

        self.world.schedule(after, act)

    def do(self, action: Callable[[], None]) -> None:
        """Does one event at this node; the judge checks the node afterwards."""
        if not self.up:
            return
        if self.paused:
            self.waiting.append(action)
            return
        try:
            action()
        except PowerLoss:
            self.world.faults.power_loss(self)
            return
        if self.up:
            self.world.judge.look(self)

    def tick(self) -> None:
        self.member.handle(ev.Tick())
        if not self.working:
            self.world.judge.ticked(self)
        self.release()
        now = self.monotonic()
        if self.core.leads() and self.member.serves_reads(now):
            self.world.judge.reads(self)
            if self.core.accepts() and not self.working:
                if self.world.deletes:
                    self.holding.lives.act()
                self.holding.hand_on()
                self.holding.end_some()
        self.later(max(self.core.wake_at(now) - now, 0.001), self.tick)

    # --- what a member needs of the world -----------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.world.now + self.clock_base

    def wall_ms(self) -> int:
        return max(1_700_000_000_000 + int(self.world.now * 1000) + self.wall_offset_ms, 0)  # no clock is older than 1970

    def chance(self) -> float:
        return self.world.chance.random()

    def soon(self, work: Callable[[], None]) -> None:
        self.later(0.0, work)

    def await_turn_end(self) -> None:
        self.later(self.world.chance.choice((0.0, 0.0005)), lambda: self.member.handle(ev.TurnEnded()))

    def offload(self, work: Callable[[], None], then: Callable[[], None]) -> bool:
        """Does the work at once or late, by chance. The process may end before that, or before it hears that the work is done."""
        world, chance = self.world, self.world.chance
        if not world.late_s or chance.random() < 0.2:
            work()
            return True
        self.working = True
        world.judge.counts["works carried out late"] += 1

        def carry_out() -> None:
            work()
            self.later(chance.expovariate(1 / world.late_s), done)

        def done() -> None:
            self.working = False
            then()

        self.later(chance.expovariate(1 / world.late_s), carry_out)
        return False

    def grew(self) -> None:
        self.saving.grew()

    def send(self, node: str, request: m.Request) -> None:
        world, run, sent = self.world, self.run, self.world.now
        world.judge.said.sends(self, request)
        to = world.nodes.get(node)
        if to is None:
            return
        world.trace_letter(self.name, node, request)
        world.network.carry(self.name, node, lambda: to.asked(self, run, request, sent))

    def asked(self, source: "Node", run: int, request: m.Request, sent: float) -> None:
        if self.up:
            ticket: Ticket = (source.name, run, request)
            pre = isinstance(request, m.Vote) and request.pre
            state = self.core.state
            before = state.epoch, state.voted_for
            self.do(lambda: self._take(ev.PeerRequest(request, ticket), sent))
            if pre and not self.paused and self.up and before != (state.epoch, state.voted_for):
                self.world.judge.fail(f"R10: {self.name}: a pre-vote changed {before}")
        elif self.world.resets and (self.name, source.name) not in self.world.network.cut:
            source.do(lambda: source.member.handle(ev.Unreachable(self.name)))

    def aside(self, asker: str, work: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        then(work())

    def reply(self, ticket: Ticket | None, answer: m.Answer) -> None:
        if ticket is None:
            return
        name, run, request = ticket
        self.world.judge.said.answers(self, request, answer)
        self.world.trace_letter(self.name, name, answer)
        event, sent, to = ev.PeerAnswer(self.name, request, answer), self.world.now, self.world.nodes[name]
        self.world.network.carry(self.name, name, lambda: to.do(lambda: to._take(event, sent)) if to.run == run else None)

    def _take(self, event: ev.PeerRequest | ev.PeerAnswer, sent: float) -> None:
        said, state = self.world.judge.said, self.core.state
        late, before = said.is_late(self, event), (state.end, state.hw, state.fetches)
        said.hears(self, event, sent)
        self.member.handle(event)
        if late and before != (state.end, state.hw, state.fetches):
            self.world.judge.fail(f"R16: {self.name} took a late answer: {event}")

    def committed(self, units: Sequence[Unit]) -> None:
        self.world.judge.look(self, midway=True)
        for unit in units:
            if unit.queue.topic == STATE_TOPIC:
                self.apply(record.decode(unit.records).body, unit.physical_offset)
            self.holding.committed(unit)
            if isinstance(unit.owner, int):
                self.parked.append((unit.owner, unit.end))
                unit.owner = None
        self.release()

    def release(self) -> None:
        """Answers the sends that are committed, and with fixed roles on enough nodes."""
        if self.parked and self.core.lease_good(self.monotonic()):
            done = [one for one in self.parked if one[1] <= self.replicated_to]
            self.parked = self.parked[len(done) :]
            for number, end in done:
                self.world.judge.acked(self, number, end)

    def replicated(self, offset: int) -> None:
        self.replicated_to = offset
        self.release()

    def became_leader(self, epoch: int) -> None:
        self.world.judge.leads(self)

    def stepped_down(self, epoch: int, reason: str) -> None:
        self.parked.clear()
        self.holding.drop_overlay()
        for unit in self.store.log.pending:
            unit.owner = None

    def install_snapshot(self, order: fx.InstallSnapshot) -> None:
        self.later(self.world.chance.uniform(0.01, 0.5), lambda: self.fetch_snapshot(order))

    def fetch_snapshot(self, order: fx.InstallSnapshot) -> None:
        other, s0 = self.world.nodes[order.node], order.answer.s0
        path = f"{ROOT}/rmq/snapshot-{s0:020d}"
        network = self.world.network
        reachable = other.up and network.open(self.name, other.name) and network.open(other.name, self.name)
        if not reachable or self.disk_full or path not in other.disk.paths():
            self.member.handle(ev.InstallFailed())
            return
        write_file(self.disk, f"{ROOT}/rmq/{RECEIVED}", bytes(other.disk.content(path)))
        found = {section: rows for section, rows in other.store.snapshots.rows() if section in (EPOCHS, VOTERS)}
        history = tuple(EpochEntry(*row) for row in found[EPOCHS])
        voters = tuple(Voter(*row) for row in found[VOTERS])
        self.world.judge.counts["snapshot installed"] += 1
        self.world.judge.tainted.add(self.core.state.me.store)  # it is not proven: what it had goes now, file by file
        self.member.install_from(
            order.answer.log_start, order.answer.s1, history, voters, lambda: _none(self.store.snapshots.install())
        )
        self.load_tables()

    def done(self, ticket: m.Ticket, refusal: str) -> None:
        if ticket is not None:
            self.world.judge.counts["changes done" if not refusal else "changes refused"] += 1

    def warn(self, text: str) -> None:
        self.world.judge.counts["warnings"] += 1

    def fatal(self, reason: str, cause: Exception | None = None) -> None:
        self.world.judge.fail(f"{self.name} stops: {reason}")

    # --- producing ----------------------------------------------------------------------------------------------------

    def produce(self, bodies: Sequence[tuple[int, str, int, bytes]]) -> None:
        """The leader takes these sends: number of the send, topic, queue, body."""
        if not self.core.accepts():
            return
        units = []
        for number, topic, queue_id, body in bodies:
            data = record.draft(topic, body, b"", born_timestamp=1, born_host=HOST)
            if topic in WAITS:
                units.append(self.holding.held(data, WAITS[topic], queue_id))
                units[-1].owner = number
                continue
            checked = check(data, topic)
            units.append(Unit(data, checked.sizes, checked.tags_codes, self.store.queues.get(topic, queue_id), number))
        try:
            self.member.append(units)
        except (StoreError, Refusal) as error:
            self.world.judge.counts["sends refused"] += 1
            self.world.judge.counts["refused: its topic is deleted"] += "does not exist any more" in str(error)
            return
        self.grew()


def _none(value: object) -> None:
    """Drops the result of a callback."""
