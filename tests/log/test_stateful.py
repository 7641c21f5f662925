"""A store against a model: append, flush, dispatch, save, kill, lose power, lose derived files, stop, in any order.

The model is a list of what was appended, and how much of it was durable. After each opening the store must be a prefix
of the list that is not shorter than what was durable (D1, D6), and its queues what the prefix says (D10, D12).
"""

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq.errors import StoreError
from rmq.log.commitlog import Unit
from tests.log.conftest import ROOT, Bench

Sent = tuple[int, int, int, bytes]  # end, queue, number, body


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.bench = Bench().begin()
        self.sent: list[Sent] = []
        self.durable = 0
        self.count = 0

    def units(self, sizes: list[tuple[int, int]]) -> list[Unit]:
        self.count += 1
        return [self.bench.unit(b"%d." % self.count + b"x" * size, queue_id=queue) for queue, size in sizes]

    @rule(sizes=st.lists(st.tuples(st.integers(0, 3), st.sampled_from((0, 40, 700, 2500))), min_size=1, max_size=8))
    def append(self, sizes: list[tuple[int, int]]) -> None:
        units = self.bench.append(*self.units(sizes))
        for unit, (queue, size) in zip(units, sizes, strict=True):
            self.sent.append((unit.end, queue, unit.queue_offset, b"%d." % self.count + b"x" * size))

    @rule(
        sizes=st.lists(st.tuples(st.integers(0, 3), st.sampled_from((40, 2500))), min_size=1, max_size=6), room=st.integers(0, 3)
    )
    def append_on_a_full_disk(self, sizes: list[tuple[int, int]], room: int) -> None:
        left = room

        def before(operation: str, path: str) -> None:
            nonlocal left
            if operation in ("pwrite", "allocate"):
                left -= 1
                if left == -1:
                    raise OSError(28, "full")

        end = self.bench.store.log.end
        units = self.units(sizes)
        self.bench.store.log.flush()
        self.bench.disk.before = before
        try:
            units = self.bench.append(*units)
        except StoreError:
            assert self.bench.store.log.end == end
        else:
            self.sent += [
                (unit.end, queue, unit.queue_offset, b"%d." % self.count + b"x" * size)
                for unit, (queue, size) in zip(units, sizes, strict=True)
            ]
        finally:
            self.bench.disk.before = lambda operation, path: None

    @rule()
    def flush(self) -> None:
        self.durable = self.bench.store.log.flush()

    @rule()
    def dispatch(self) -> None:
        self.bench.store.dispatcher.advance(self.bench.store.log.end)

    @rule()
    def save_progress(self) -> None:
        self.bench.store.save_progress()

    @rule(lost=st.sampled_from(("nothing", "/consumequeue/T/1/", "/consumequeue/", "/rmq/queues", "/rmq/epochs")))
    def kill(self, lost: str) -> None:
        self.bench.disk.kill()
        for path in self.bench.disk.paths():
            if lost in path:
                self.bench.disk.unlink(path)
        self.reopen(self.bench.store.log.end)

    @rule(seed=st.integers(0, 1 << 16), share=st.sampled_from((0.0, 0.5, 0.9, 1.0)))
    def lose_power(self, seed: int, share: float) -> None:
        chance = random.Random(seed)
        self.bench.disk.crash(lambda: chance.random() < share)
        self.reopen(self.durable)

    @rule()
    def stop_and_start(self) -> None:
        self.bench.store.close()
        self.reopen(self.bench.store.log.end)

    def reopen(self, at_least: int) -> None:
        end = self.bench.open().log.end
        assert end >= at_least
        self.sent = [one for one in self.sent if one[0] <= end]
        self.durable = end
        stored = [(queue, number, body) for queue in range(4) for number, body in enumerate(self.bench.bodies("T", queue))]
        assert stored == sorted((queue, number, body) for _, queue, number, body in self.sent)
        self.bench.begin()
        self.durable = self.bench.store.log.durable_end

    @invariant()
    def behind_the_end_is_nothing(self) -> None:
        log = self.bench.store.log
        assert not log.segments()[-1].read(log.end, 8192).strip(b"\0") or log.segments()[-1].base > log.end
        assert log.durable_end <= log.end
        assert self.bench.disk.exists(f"{ROOT}/abort")


StoreMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestStore = StoreMachine.TestCase
