"""The invariants of replication. The judge sees all nodes at once and checks the rules after every event.

`truth` holds what was committed, byte for byte: the first leader that commits a byte writes it here, and from then on no node may
have another one (R5). The ids of the rules are those of docs/invariants.md.
"""

from collections import Counter
from typing import TYPE_CHECKING

from rmq.log.files.epochs import EpochRecord
from rmq.raft import messages as m
from rmq.raft.roles import Leader
from tests.sim.chain import Chain, entry_size, raw
from tests.sim.said import Said

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World


class Violation(AssertionError):
    """An invariant does not hold."""


class Judge:
    """`counts`: how often things happened in this run."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        self.truth = bytearray()
        self.truth_from = 0
        self.voters: m.Voters = ()  # committed
        self.sent: dict[int, int] = {}  # acknowledged sends: number -> end of the record
        self.tainted: set[str] = set()  # stores that may have lost what they promised
        self._chains: dict[str, Chain] = {}
        self._entries: dict[tuple[int, int, str], int] = {}  # (end, epoch, writer) -> digest
        self._leaders: dict[int, str] = {}
        self._epochs: dict[str, int] = {}  # in this run
        self._saved_epochs: dict[str, int] = {}
        self.said = Said(self.fail, self.counts, world)
        self._committed_in: dict[int, int] = {}  # epoch -> end of what its leader committed
        self._committed_before: dict[int, int] = {}  # epoch -> end of what leaders of older epochs had committed when it began
        self._hw: dict[str, int] = {}
        self._lonely: dict[str, int] = {}  # ticks of a leader without a majority
        self._doomed: set[str] = set()  # committed more than the lossy leader of now has: they must begin anew

    def check(self, holds: bool, rule: str, what: str) -> None:
        if not holds:
            self.fail(f"{rule}: {what}")

    def fail(self, what: str) -> None:
        raise Violation(f"seed {self.world.seed}, at {self.world.now:.3f} s: {what}")

    # --- the life of a node -------------------------------------------------------------------------------------------

    def booted(self, node: "Node") -> None:
        store, log, state = node.store, node.store.log, node.core.state
        name = store.vote.store_id
        if log.start == log.end > 0:  # stopped while it began anew
            self.log_was_reset(node, log.start)
        chain = self._chains.setdefault(name, Chain(log.start))
        saved = self._saved_epochs.get(name, 0)
        self.check(store.vote.epoch >= saved, "R12", f"{node.name}: its epoch fell from {saved} to {store.vote.epoch}")
        self._epochs[name] = store.vote.epoch
        if log.end < chain.end:
            self.counts["tails lost"] += 1
            self.check(chain.cut(log.end), "D6", f"{node.name}: its log ends at {log.end}, which is not the end of an entry")
        if name not in self.tainted:
            promised = self.said.promised.get(name, 0)
            self.check(
                log.end >= promised,
                "D1",
                f"{node.name} claimed to hold {promised}, but its log ends at {log.end}",
            )
        if store.recovered.records_behind or (not store.vote.proven and store.vote.incarnation == 1):
            self.tainted.add(name)
        self.check(self._was_committed(node), "R17", f"{node.name}: the HW that it saved, {state.hw}, was never committed")
        self.said.promised[name] = min(self.said.promised.get(name, 0), log.end)
        self._hw[name] = max(log.start, min(self._hw.get(name, 0), state.hw))
        if name in self._doomed and self._agrees(chain, state.hw):
            self._doomed.discard(name)  # with its power it lost what it knew as committed
        self.look(node)
        same = raw(node, log.start, log.end) == chain.data[log.start - chain.base :]
        self.check(same, "R2", f"{node.name} started with other bytes than it had before")
        self.check_table(node)

    def _was_committed(self, node: "Node") -> bool:
        state = node.core.state
        return state.hw <= len(self.truth) or state.me.store in self._doomed

    def _agrees(self, chain: Chain, hw: int) -> bool:
        """Whether what this log has below `hw` is what was committed."""
        return hw <= len(self.truth) and chain.data[: hw - chain.base] == self.truth[chain.base : hw]

    def died(self, node: "Node") -> None:
        self.counts["stops"] += 1
        self.counts["stops while a vote is saved or a log cut"] += node.working

    def forget_epochs(self) -> None:
        """Forgets the saved epochs, because a story put an old vote file back."""
        self._saved_epochs.clear()

    def look(self, node: "Node", midway: bool = False) -> None:
        """Checks a node after each of its events. `midway`: the node is in the middle of its work, and the machine may not
        know yet what was appended meanwhile."""
        state, store = node.core.state, node.store
        name, end, hw = state.me.store, store.log.end, state.hw
        if state.epoch < self._epochs[name]:
            self.fail(f"R12: {node.name}: its epoch fell from {self._epochs[name]} to {state.epoch}")
        self._epochs[name] = state.epoch
        self._saved_epochs[name] = store.vote.epoch
        if state.proven:
            self.tainted.discard(name)
        chain = self._chains[name]
        if end > chain.end:
            self._grew(node, chain, end)
        if node.working:  # what the machine decided is not done yet
            return
        if not (state.end == end or (midway and state.end < end)) or end != chain.end:
            self.fail(f"R2: {node.name}: the log ends at {end}, for the machine at {state.end}, for the judge at {chain.end}")
        if hw > self._hw[name] and name not in self._doomed:
            self._committed(node, chain, self._hw[name], hw)
            self._hw[name] = hw
        if not store.dispatcher.position <= hw <= end:
            self.fail(f"R18: {node.name} dispatched {store.dispatcher.position}, but its HW is {hw} and its log ends at {end}")

    def _grew(self, node: "Node", chain: Chain, end: int) -> None:
        """R3: whoever has an entry of that epoch there has the same entries before it."""
        at, history = chain.end, node.core.state.epochs
        data = raw(node, at, end)
        index, place = 0, len(history)
        while index < len(data):
            size = entry_size(data, index)
            while place < len(history) and history[place].start <= at + index:
                place += 1
            while place and history[place - 1].start > at + index:
                place -= 1
            epoch, _, writer = history[place - 1][:3] if place else (0, 0, "")
            digest = chain.add(data[index : index + size], epoch)
            index += size
            if chain.base == 0:  # a log that begins at a snapshot has no digest of what was before
                known = self._entries.setdefault((at + index, epoch, writer), digest)
                if known != digest:
                    self.fail(f"R3: {node.name}: another entry of epoch {epoch} ends at {at + index}")
            self.counts["entries"] += 1

    def _committed(self, node: "Node", chain: Chain, before: int, hw: int) -> None:
        truth, base = self.truth, chain.base
        if before < len(truth):
            to = min(hw, len(truth))
            if chain.data[before - base : to - base] != truth[before:to]:
                self.fail(f"R5: {node.name}: its bytes from {before} to {to} are not those that were committed")
        if hw > len(truth):
            self._check_majority(node, hw)
            self.counts["commits"] += 1
            truth += chain.data[len(truth) - base : hw - base]
            self._committed_in[node.core.state.epoch] = hw
            self.voters = node.core.state.lists[0][1]

    def _check_majority(self, node: "Node", hw: int) -> None:
        """R6, R7: a majority has claimed in this epoch that it holds everything below `hw`, and the last entry is of this
        epoch."""
        state = node.core.state
        if self._leaders.get(state.epoch) != state.me.store:
            self.fail(f"R6: {node.name} commits up to {hw}, but does not lead")
        if not state.epochs or state.epochs[-1].epoch != state.epoch or state.epochs[-1].start >= hw:
            self.fail(f"R6: {node.name} commits {hw} in epoch {state.epoch}, but its last epoch entry is {state.epochs[-1:]}")
        own = node.store.log.durable_end if self.world.sync_flush else node.store.log.end
        claims, me = self.said.claims, state.me.store
        have = [own if voter.store == me else claims.get((state.epoch, voter.store), -1) for voter in state.voters]
        claimed = [(voter.node, one >= hw) for voter, one in zip(state.voters, have, strict=True)]
        for side in (dict(claimed), dict(reversed(claimed))):  # a node's new disk, and its old one: a majority with each (R22)
            if sum(side.values()) * 2 <= len(side):
                self.fail(f"R6: {node.name} commits up to {hw}, but its voters claimed only {have}")

    # --- leaders ------------------------------------------------------------------------------------------------------

    def opens(self, node: "Node", found: EpochRecord) -> None:
        """A leader appends an epoch record."""
        state = node.core.state
        if found.kind == "voters":
            old, new = set(state.voters), set(found.voters)
            self.check(len(old ^ new) == 1, "R22", f"{node.name} changes {old} to {new}")
            settled = state.lists[-1][0] < state.hw and state.epochs[-1].start < state.hw
            self.check(settled, "R22", f"{node.name}: the former list, or the record of this epoch, is not committed yet")
            self.counts["changes of voters"] += 1
            return
        before = self._leaders.setdefault(found.epoch, state.me.store)
        self.check(before == state.me.store, "R1", f"{node.name} and {before} both lead in epoch {found.epoch}")
        self.counts["elections"] += 1
        known = self._hw[state.me.store]
        needed = max((end for epoch, end in self._committed_in.items() if epoch < found.epoch), default=0)
        chain = self._chains[state.me.store]
        if needed > chain.end or chain.data[known - chain.base : needed - chain.base] != self.truth[known:needed]:
            self._lost(node, found, known)
            needed = min(needed, len(self.truth))
        self._committed_before[found.epoch] = needed

    def _lost(self, node: "Node", found: EpochRecord, known: int) -> None:
        """R4. The exception (D3): too many disks had lost what they promised, and the epoch says that it is lossy."""
        voters = [voter.store for voter in found.voters]
        sane = sum(store not in self.tainted for store in voters)
        log = node.store.log
        allowed = (found.lossy or log.end == log.start) and sane * 2 <= len(voters)  # an empty log has no loss to speak of
        self.check(
            allowed,
            "R4",
            f"{node.name} leads epoch {found.epoch} and lacks committed bytes (lossy: {found.lossy}, whole disks: {sane})",
        )
        chain = self._chains[node.core.state.me.store]
        mine = chain.data[known - chain.base : min(len(self.truth), log.end) - chain.base]
        theirs = self.truth[known : known + len(mine)]
        same = next((at for at, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1]), len(mine))
        ends = [end for end in chain.ends if end <= known + same]
        self.counts["lossy epochs"] += 1
        to = ends[-1] if ends else known
        del self.truth[to:]
        self._committed_in = {epoch: min(end, to) for epoch, end in self._committed_in.items()}
        self.sent = {number: end for number, end in self.sent.items() if end <= to}
        self._entries = {key: digest for key, digest in self._entries.items() if key[0] <= to}
        self._doomed |= {store for store, hw in self._hw.items() if hw > to}

    def leads(self, node: "Node") -> None:
        self.world.faults.leader_made(node)

    def acked(self, node: "Node", number: int, end: int) -> None:
        self._check_lease(node, "acknowledges")
        if end > len(self.truth):
            self.fail(f"R6: {node.name} acknowledges send {number} at {end}, which is not committed")
        self.sent[number] = end
        self.counts["acknowledged"] += 1

    def reads(self, node: "Node") -> None:
        """The node would answer reads as leader now."""
        state = node.core.state
        self._check_lease(node, "serves reads")
        self.check(
            state.hw >= self._committed_before[state.epoch],
            "R17",
            f"{node.name} serves reads in epoch {state.epoch} with HW {state.hw}, but earlier leaders had committed more",
        )

    def _check_lease(self, node: "Node", does: str) -> None:
        """R11: a majority of the voters, itself counted, sent something in this epoch that reached the leader, and sent it within
        `checkQuorum`."""
        ago = self.world.now - self.said.in_touch(node.core.state)
        if ago > node.core.state.timing.check_quorum + 1e-6:
            self.fail(f"R11: {node.name} {does}, but it was in touch with a majority {ago} s ago")

    def ticked(self, node: "Node") -> None:
        """R11: a leader that is out of touch for longer gives leadership up, so that clients look elsewhere. It may still lead in
        the tick that finds out, or that takes a voter out."""
        state, name = node.core.state, node.core.state.me.store
        leads = isinstance(node.core.role, Leader)
        ago = self.world.now - self.said.in_touch(state) if leads else 0.0
        self._lonely[name] = self._lonely.get(name, 0) + 1 if ago > 2 * state.timing.check_quorum else 0
        if self._lonely[name] > 2:
            self.fail(f"R11: {node.name} still leads, but it was in touch with a majority {ago} s ago")

    # --- logs ---------------------------------------------------------------------------------------------------------

    def cuts(self, node: "Node", to: int) -> None:
        state, log = node.core.state, node.store.log
        name = state.me.store
        self.counts["cuts"] += 1
        self.check(not isinstance(node.core.role, Leader), "R2", f"{node.name} leads and cuts its log to {to}")
        self.check(to >= self._hw[name], "R15", f"{node.name} cuts its log to {to}, but knew {self._hw[name]} as committed")
        self.check(
            node.store.dispatcher.position <= to,
            "R20",
            f"{node.name} cuts its log to {to}, but has dispatched up to {node.store.dispatcher.position}",
        )
        chain = self._chains[name]
        if to < min(log.end, len(self.truth)):
            data = bytes(chain.data[to - chain.base :])
            size = entry_size(data, 0)
            same = data[:size] == self.truth[to : to + size]
            self.check(not same, "R15", f"{node.name} cuts off a committed entry at {to}")
        self.check(chain.cut(to), "R14", f"{node.name} cuts its log to {to}, which is not the end of an entry")
        self.said.promised[name] = min(self.said.promised.get(name, 0), to)

    def log_was_reset(self, node: "Node", log_start: int) -> None:
        name = node.core.state.me.store
        self._chains[name] = Chain(log_start)
        self._hw[name] = log_start
        self.said.promised[name] = 0
        self._doomed.discard(name)
        self.tainted.add(name)

    def check_table(self, node: "Node") -> None:
        """R13: the epoch history is what the records in the log say."""
        start, history = node.store.log.start, node.core.state.epochs
        said = [entry[:3] for _, entry in self._chains[node.core.state.me.store].epochs if entry.start >= start]
        here = [entry[:3] for entry in history if entry.start >= start]
        self.check(here == said, "R13", f"{node.name}: its epoch history is {here}, but its log says {said}")
