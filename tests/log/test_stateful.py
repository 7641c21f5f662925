"""A store against a model, by hypothesis: what the disk campaign does at random, in any order.

The model is a list of what was appended, and how much of it was durable. After each opening the store must be a prefix
of the list that is not shorter than what was durable (D1, D6), and its queues what the prefix says (D10, D12). The
actions are those of `tests.faults.disk`: append, roll, cut, snapshot, retention, full disk, crash, reopen, rebuild.
"""

import random
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.faults.disk import ACTIONS, ENDINGS, Case
from tests.log.conftest import ROOT

CHANCE = st.randoms(use_true_random=False)


class StoreMachine(RuleBasedStateMachine):
    @initialize(chance=CHANCE)
    def begin(self, chance: random.Random) -> None:
        self.case = Case(chance)

    @rule(chance=CHANCE, action=st.sampled_from(ACTIONS))
    def act(self, chance: random.Random, action: Callable[[Case], None]) -> None:
        self.case.chance = chance
        action(self.case)

    @rule(chance=CHANCE, ending=st.sampled_from(ENDINGS))
    def end_and_reopen(self, chance: random.Random, ending: Callable[[Case], None]) -> None:
        self.case.chance = chance
        ending(self.case)
        self.case.reopen()

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.case.found == []

    @invariant()
    def behind_the_end_is_nothing(self) -> None:
        log = self.case.bench.store.log
        last = log.segments()[-1]
        behind = max(last.base, log.end)
        assert not last.read(behind, last.end - behind).strip(b"\0")
        assert log.start <= log.durable_end <= log.end
        assert self.case.bench.disk.exists(f"{ROOT}/abort")


StoreMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,  # every run tries the same; the campaign is for new ones
    phases=[Phase.generate],  # shrinking takes minutes: a failure prints its steps
    suppress_health_check=[HealthCheck.too_slow],
)
TestStore = StoreMachine.TestCase
