"""Queues made anew by another process: the same queues, whatever happens to that process."""

from collections.abc import Callable

import pytest

from rmq.log import dispatch
from rmq.log.files import ownfiles
from rmq.log.rebuild import rebuild
from tests.log.conftest import ROOT, SETTINGS, Bench

APART = SETTINGS._replace(apart_above=1)


def lost(bench: Bench) -> dict[tuple[str, int], tuple[int, int, bytes]]:
    """A store whose queue files are gone, opened; what its queues were."""
    bench.fill(60)
    bench.store.save_progress()
    expected = bench.queues()
    bench.disk.kill()
    for path in bench.disk.paths():
        if "/consumequeue/" in path:
            bench.disk.unlink(path)
    bench.settings = APART
    bench.open()
    return expected


def work(bench: Bench) -> list[int]:
    told: list[int] = []
    assert rebuild(bench.disk, ROOT, APART, bench.store.rebuild_to, told.append)
    return told


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "REPORT_BYTES", 3000)


def test_the_queues_are_the_same(bench: Bench, small_steps: None) -> None:
    """D10: entries, numbers and files; and the node goes on from there."""
    expected = lost(bench)
    assert bench.store.rebuild_to == bench.store.log.end
    told = work(bench)
    assert told == sorted(told)
    assert len(told) > 3
    bench.store.finish_rebuild()
    assert bench.queues() == expected
    assert bench.store.rebuild_to == 0
    bench.begin().send(b"next")
    assert bench.bodies()[-1] == b"next"
    bench.store.close()
    bench.open()
    assert (bench.store.rebuild_to, bench.store.recovered.queues_rebuilt) == (0, False)


@pytest.mark.parametrize("begun", [True, False])
def test_a_worker_that_failed_is_replaced(bench: Bench, begun: bool) -> None:
    expected = lost(bench)
    if begun:
        work(bench)
        bench.disk.unlink(f"{ROOT}/rmq/queues")
    bench.store.finish_rebuild()
    assert bench.queues() == expected


@pytest.mark.parametrize("done", [True, False])
def test_a_node_that_ends_meanwhile_begins_again_unless_all_was_done(bench: Bench, done: bool) -> None:
    expected = lost(bench)
    if done:
        work(bench)
    bench.store.close()
    for _ in range(2):
        assert bench.open().rebuild_to == (0 if done else bench.store.log.end)
        bench.disk.crash()
    if not done:
        bench.open()
        work(bench)
        bench.store.finish_rebuild()
    bench.disk.kill()
    bench.open()
    assert bench.queues() == expected


def test_damage_ends_the_worker_and_the_node_only_reads(bench: Bench) -> None:
    expected = lost(bench)
    bench.disk.flip(bench.segment(), 400 * 8)
    assert not rebuild(bench.disk, ROOT, APART, bench.store.rebuild_to, lambda position: None)
    assert ownfiles.load_queues(bench.disk, f"{ROOT}/rmq") is None
    bench.store.finish_rebuild()
    assert bench.store.read_only
    assert {key: high for key, (_, high, _) in bench.queues().items()} == {key: high for key, (_, high, _) in expected.items()}


def test_a_short_log_is_not_worth_a_process(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench().begin()
    bench.fill(3)
    bench.settings = SETTINGS._replace(apart_above=1 << 20)
    bench.store.close()
    bench.disk.unlink(f"{ROOT}/rmq/queues")
    assert bench.open().rebuild_to == 0
    assert bench.store.recovered.queues_rebuilt
