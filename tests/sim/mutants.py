"""`python -m tests.sim.mutants`: each rule is taken out of a copy of the code; a story or a seed must notice (G1).

A mutant is a line of the sources with the rule left out. Nothing of this is in the shipped code: the copy lies in a
temporary directory. Prints a Markdown table: which story notices, and after how many seeded worlds a check of the judge does.
A mutant that only hangs is not noticed: a rule must be missed by something that says so.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
HANGS_S = 300
STORIES = (
    "tests/raft",
    "tests/log/test_replicated.py",
    "tests/log/test_deletions.py",
    "tests/sim/test_stories.py",
    "tests/sim/test_fixed_stories.py",
)
WAITING = (  # stories of messages that wait
    "tests/delivery",
    "tests/log/test_pending.py",
    "tests/broker/test_delays.py",
    "tests/broker/test_transaction_stories.py",
    "tests/broker/test_pop_stories.py",
    "tests/broker/test_pop_histories.py",
    "tests/broker/test_deletions.py",
)
COPIED = ("rmq", "tests/raft", "tests/sim", "tests/log", "tests/delivery", "tests/broker", "tests/data/golden")
_LOG_COMPARED = "    if (vote.last_epoch, vote.end) <"
_MAY_CHANGE = "    if begin and role.change is None and not role.over and role.start_end and state.hw >= role.start_end:"


class Mutant(NamedTuple):
    """`rule`: what is left out. In `path` `old`, which stands there once, becomes `new`."""

    rule: str
    what: str
    path: str
    old: str
    new: str


MUTANTS = [
    Mutant("R1", "a newer epoch does not end a leadership", "rmq/raft/electing.py",
           '        state.role.over = f"epoch {epoch} has begun elsewhere"\n'
           "        leading.close(state, state.role)\n",
           '        state.save_vote(epoch, "-", state.proven)\n        return\n'),
    Mutant("R3", "the epoch of a fetch is not looked at", "rmq/raft/epochs.py",
           "    index = find(history, epoch, writer)\n    if index < 0:\n        by_rocketmq",
           "    if history:\n        return offset <= end\n    index = -1\n    if index < 0:\n        by_rocketmq"),
    Mutant("R6", "an older epoch's entries are committed by counting", "rmq/raft/leading.py",
           "        if have >= role.start_end:\n", "        if have >= 0:\n"),
    Mutant("R6", "learners count", "rmq/raft/leading.py",
           "have = held_by_majority(state.voters, [_ack_of(state, role, voter.store) for voter in state.voters])",
           "have = sorted([state.ack, *(peer.ack for peer in role.peers.values())])[len(role.peers) // 2]"),
    Mutant("R7, D1", "acknowledges what is not flushed", "rmq/raft/roles.py",
           "return self.durable if self.me.sync_flush else self.end", "return self.end"),
    Mutant("R8", "a second vote in one epoch", "rmq/raft/electing.py",
           'vote.epoch == state.epoch and state.voted_for not in ("-", vote.store)', "False"),
    Mutant("R8", "the vote is not saved", "rmq/raft/roles.py",
           "        self.out.append(SaveVote(epoch, voted_for, proven))\n", ""),
    Mutant("R9", "the vote does not ask for the log", "rmq/raft/electing.py",
           _LOG_COMPARED, _LOG_COMPARED.replace("if", "if vote.pre and")),
    Mutant("R9", "the pre-vote does not ask for the log", "rmq/raft/electing.py",
           _LOG_COMPARED, _LOG_COMPARED.replace("if", "if not vote.pre and")),
    Mutant("R9", "the log's length counts, not its epoch", "rmq/raft/electing.py",
           _LOG_COMPARED + " (epochs.last(state.epochs)[0], state.end)", "    if vote.end < state.end"),
    Mutant("R10", "a pre-vote raises the epoch", "rmq/raft/electing.py",
           "    if vote.pre:\n        _reply_vote",
           "    if vote.pre:\n        if vote.epoch > state.epoch:\n"
           '            adopt(state, vote.epoch, "", now)\n        _reply_vote'),
    Mutant("R10, L2", "pre-votes are granted while a leader is there", "rmq/raft/electing.py",
           "    if not vote.transfer:\n        if isinstance(role, Leader)",
           "    if False:\n        if isinstance(role, Leader)"),
    Mutant("R11", "answers without a lease", "rmq/raft/core.py",
           "return isinstance(self.role, Leader) and now < self.role.lease", "return isinstance(self.role, Leader)"),
    Mutant("R11", "any fetch renews the lease", "rmq/raft/leading.py",
           "peer.seen = max(peer.seen, min(request.echo, now))", "peer.seen = now"),
    Mutant("R11", "a leader without a majority stays", "rmq/raft/leading.py",
           "if now > role.lease + state.timing.check_quorum:", "if False:"),
    Mutant("R12", "fetches of an older epoch count", "rmq/raft/core.py",
           "    elif fetch.epoch < state.epoch:\n", "    elif False:\n"),
    Mutant("R13", "a cut leaves its epoch entries", "rmq/raft/roles.py",
           "        self.epochs = epochs.below(self.epochs, to)\n", ""),
    Mutant("R14", "the own end of the epoch is not looked at", "rmq/raft/epochs.py",
           "return min(parted_end, end_of(history, index, end))", "return min(parted_end, end)"),
    Mutant("R15", "cuts what is committed", "rmq/raft/following.py",
           "    elif to < state.hw:\n", "    elif to < 0:\n"),
    Mutant("R16", "an answer to any fetch is taken", "rmq/raft/core.py",
           "event.request != role.fetch or event.node != role.leader", "role.fetch is None"),
    Mutant("R17", "a leader reads before it has committed", "rmq/raft/core.py",
           "bool(self.role.start_end) and self.state.hw >= self.role.start_end and", "bool(self.role.start_end) and"),
    Mutant("R17", "HW goes back", "rmq/raft/roles.py",
           "        if hw > self.hw:\n", "        if hw != self.hw:\n"),
    Mutant("R18", "dispatches what is not committed", "rmq/broker/replication/member.py",
           "to = self._store.dispatcher, self._committed_end", "to = self._store.dispatcher, self._log.end"),
    Mutant("R20", "a cut leaves what waits for dispatch", "rmq/log/commitlog.py",
           "            while self.pending and self.pending[-1].end > to:", "            while False:"),
    Mutant("R21", "a gap is not noticed", "rmq/raft/leading.py",
           "    if request.from_ < state.log_start or request.wants_snapshot or unknown:",
           "    if request.wants_snapshot or unknown:"),
    Mutant("R21", "a node after a snapshot serves and counts at once", "rmq/raft/roles.py",
           "        return not self.installing and self.end >= self.ready_at", "        return True"),
    Mutant("R22", "a change before the one before is committed", "rmq/raft/membership.py",
           _MAY_CHANGE, _MAY_CHANGE.replace(" and role.change is None", "")),
    Mutant("R22", "a change before an entry of this epoch is committed", "rmq/raft/membership.py",
           _MAY_CHANGE, _MAY_CHANGE.replace(" and state.hw >= role.start_end", "")),
    Mutant("R22", "a list that was cut stays in force", "rmq/raft/roles.py",
           "        while len(self.lists) > 1 and self.lists[-1][0] >= to:", "        while False:"),
    Mutant("D3", "unproven votes count", "rmq/raft/quorum.py",
           "[grants.get(voter, False) for voter in voters]", "[voter in grants for voter in voters]"),
    Mutant("D3", "power loss does not unprove", "rmq/log/recovery.py",
           "proven=vote.proven and not lost", "proven=vote.proven"),
    Mutant("D3", "proven before a leader knows what is committed", "rmq/raft/following.py",
           "if state.required is None and answer.hw >= answer.epoch_start_end:", "if state.required is None:"),
    Mutant("D3", "a lossy epoch does not say so", "rmq/raft/electing.py",
           "lossy = (found is Outcome.EVERYBODY or me.unclean) and state.end > state.log_start", "lossy = False"),
    Mutant("story 53", "a master that lost what it had shown does not say so", "rmq/raft/fixed.py",
           "lossy=not has_all", "lossy=False"),
    Mutant("story 55", "a promoted slave does not say that something may be gone", "rmq/raft/fixed.py",
           "lossy=True, ticket", "lossy=False, ticket"),
    Mutant("story 55", "a promotion is answered before its epoch is on the disk", "rmq/raft/leading.py",
           "0 < role.start_end <= state.durable", "True"),
    Mutant("R7", "a flush from before a cut is heard behind it", "rmq/broker/replication/member.py",
           "self.handle(LOG_FLUSHED)", "self.handle(ev.Flushed(self._log.durable_end))"),
    Mutant("story 54", "a master does not yield to a newer one", "rmq/raft/fixed.py",
           "    elif event.epoch > state.epoch or (event.epoch == state.epoch and event.node):",
           "    elif False:"),
    Mutant("story 24", "two of three blank disks form a group", "rmq/raft/quorum.py",
           "    if voters and all(voter in grants for voter in voters):",
           "    if voters and len(grants) > len(voters) // 2:"),
    Mutant("R4, R6", "an acknowledgement counts before the logs are compared", "rmq/raft/leading.py",
           "peer.ack = max(peer.ack, min(ack.ack, peer.end))", "peer.ack = max(peer.ack, min(ack.ack, state.end))"),
    Mutant("story 17", "a new run inherits what the old one said", "rmq/raft/leading.py",
           "    if request.incarnation > peer.incarnation:", "    if peer.incarnation == 0:"),
    Mutant("story 17", "an old run is heard", "rmq/raft/leading.py",
           "    if request.incarnation < peer.incarnation:", "    if False:"),
    Mutant("story 1", "bytes behind a cut stay", "rmq/log/files/segments.py", "            segment.zero(to)\n", ""),
    Mutant("story 2", "a cut does not lower progress", "rmq/log/progress.py",
           "if known is not None and known.log > to:", "if False:"),
    Mutant("D7, story 63", "a leader's bytes are not checked", "rmq/log/replicated.py",
           "size = record.verify(data, index, place, self._protected)",
           'size = int.from_bytes(data[index : index + 4], "big") or 1'),
    Mutant("story 23", "an old disk comes back", "rmq/raft/leading.py",
           "    if not request.learner or request.store in role.removed:", "    if False:"),
    Mutant("story 30", "a late loop stands", "rmq/raft/core.py", "    elif late:  #", "    elif False:  #"),
    Mutant("story 46", "a node after a snapshot knows epochs of bytes that it lacks", "rmq/log/replicated.py",
           "if entry.start < log_start or entry.epoch == 0)", ")"),
    Mutant("story 54", "epoch entries match by epoch alone", "rmq/raft/epochs.py",
           "if history[index].epoch == epoch and history[index].writer == writer:", "if history[index].epoch == epoch:"),
    Mutant("story 60", "a leader that removed itself stays", "rmq/raft/membership.py",
           "        elif state.lists[-1][0] < state.hw:  #", "        elif False:  #"),
    Mutant("story 60", "a leader that removed itself cannot stand, though it is needed", "rmq/raft/electing.py",
           "not state.may_stand()", "not state.is_voter()"),
    Mutant("C13, story 38", "what was handed on proves nothing", "rmq/broker/pending/kinds.py",
           "        if proof is not None and proof.kind in self._kinds:", "        if False:"),
    Mutant("C13, story 38", "a start forgets what waits, and what was handed on", "rmq/log/replay.py",
           "if found.topic == STATE_TOPIC or is_pending_change(found):", "if found.topic == STATE_TOPIC:"),
    Mutant("C13, story 38", "followers do not note what waits", "rmq/log/dispatch.py",
           "unit.pending_change = pending and queue.topic == record.topic", "unit.pending_change = False"),
    Mutant("D12, story 35", "what is for a deleted topic is stored behind the deletion", "rmq/log/units.py",
           "        if queue.ended or life.ended or (", "        if (False and "),
    Mutant("D12, story 35", "a new leader knows nothing of deletions that it inherits", "rmq/log/replicated.py",
           "            self.store.queues.end(topic)\n", "            pass\n"),
    Mutant("D12, story 35", "a receipt is stored though its topic is deleted", "rmq/log/units.py",
           "        queue, life = unit.queue, unit.life\n", "        queue = life = unit.queue\n"),
    Mutant("C13, story 35", "what waits comes in the next life of its topic", "rmq/routing/topics.py",
           "        if self.ends.of(name) > stored_at:", "        if False:"),
    Mutant("C5, C10", "a receipt that is late frees its queue", "rmq/broker/pending/popreader.py",
           "        if isinstance(error, RmqError) and is_unknown(error):", "        if False:"),
    Mutant("C13", "what is being written is handed on again", "rmq/delivery/due.py",
           "            if packed not in self._in_flight:\n                self._in_flight.add(packed)",
           "            if True:\n                self._in_flight.add(packed)"),
    Mutant("C13", "what was proposed is noted, not what was stored", "rmq/log/dispatch.py",
           "                if unit.pending_change:\n                    self._read_stamped(unit)\n", ""),
    Mutant("C11, story 36", "a transaction that is being ended is ended again", "rmq/delivery/transactions.py",
           "        return None if first in self._ending or first in self._moving else self.open.rows.get(first)",
           "        return self.open.rows.get(first)"),
    Mutant("C11, story 37", "a committed message does not end its transaction", "rmq/broker/pending/halves.py",
           "        if stored.topic != HALF_TOPIC:\n            outcome",
           "        if stored.topic == OP_TOPIC:\n            outcome"),
    Mutant("C11, story 67", "a half that is appended again is another one", "rmq/broker/pending/halves.py",
           "return proof.source if proof is not None and proof.kind == HALF else stored.physical_offset",
           "return stored.physical_offset"),
    Mutant("D15, story 40", "segments go though halves live there", "rmq/delivery/transactions.py",
           "return min((half.offset for half in self.open.rows.values()), default=None)", "return None"),
    Mutant("D15, story 39", "segments go though delayed messages wait there", "rmq/delivery/due.py",
           "return min(self._chunks) * self._chunk_bytes if self._chunks else None", "return None"),
]  # fmt: skip


def try_one(mutant: Mutant, seeds: int, stories: bool) -> tuple[Mutant, str, str]:
    """(mutant, the story that failed or "", after how many worlds which rule was missed or "")"""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.xz"))
        for shared in (ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.py")):  # what the folders of tests share
            shutil.copy(shared, copy / shared.relative_to(ROOT))
        path = copy / mutant.path
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        tests = WAITING if mutant.rule.startswith(("C1", "D15")) else STORIES
        told = _run(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests) if stories else ""
        failed = re.search(r"^(?:FAILED|ERROR) \S*?::(\S+)", told, re.MULTILINE)
        played = _run(copy, "-m", "tests.sim", "--seeds", f"0:{seeds}", "--first", "--seconds", "8")
        seen = re.search(r"^seed (\d+),.*? s: (\w+:)?", played, re.MULTILINE)
        worlds = f"{int(seen[1]) + 1} ({(seen[2] or 'error').strip(':')})" if seen else ""
        return mutant, failed[1] if failed else "", worlds


def _run(copy: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            return process.communicate(timeout=HANGS_S)[0]
        except subprocess.TimeoutExpired as hanging:
            os.killpg(process.pid, signal.SIGKILL)  # the worlds are played by a child of it
            sys.stderr.write(f"it hangs: {hanging}\n")
            return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="worlds at most for each mutant")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-stories", action="store_true", help="only play worlds")
    parser.add_argument("--only", default="", help="mutants whose rule or description contains this")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in f"{mutant.rule} {mutant.what}"]
    write = sys.stdout.write
    for mutant in chosen:
        count = (ROOT / mutant.path).read_text(encoding="utf-8").count(mutant.old)
        if count != 1:
            parser.error(f"{mutant.rule}: {mutant.path} has {count} times {mutant.old!r}: the code changed, change the mutant")
    write("| rule | left out | story that fails | worlds until noticed |\n|---|---|---|---|\n")
    alive = unseen = 0
    with ThreadPool(options.jobs) as pool:
        for mutant, story, worlds in pool.imap(lambda one: try_one(one, options.seeds, not options.no_stories), chosen):
            alive += not (story or worlds)
            unseen += not worlds
            shown = f"`{story}`" if story else "none"
            write(f"| {mutant.rule} | {mutant.what} | {shown} | {worlds or '-'} |\n")
            sys.stdout.flush()
    write(f"\n{len(chosen)} mutants, {alive} survived; {unseen} (-) were not noticed in {options.seeds} worlds\n")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
