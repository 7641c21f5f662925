"""D14: a full disk still has room for the little that is needed to delete, to vote, to stop and to start."""

import errno
from collections.abc import Callable

import pytest

from rmq.errors import NoRoom, StoreError
from rmq.log.files import reserve
from rmq.log.files.memory import PowerLoss
from tests.log.conftest import ROOT, SETTINGS, Bench
from tests.log.test_retention import drop, filled, snapshot

RESERVE = f"{ROOT}/rmq/reserve"


@pytest.fixture
def bench() -> Bench:
    return Bench(SETTINGS._replace(reserve_bytes=reserve.BYTES)).begin()


def fill_up(bench: Bench) -> None:
    """From now on the disk has no room for anything but what is there, as long as the store holds some back."""
    assert bench.disk.size(RESERVE) == reserve.BYTES

    def full(operation: str, path: str) -> None:
        if operation in ("create", "allocate") and bench.disk.exists(RESERVE):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    bench.disk.before = full


def test_segments_are_deleted(bench: Bench) -> None:
    filled(bench)
    fill_up(bench)
    bench.send()
    with pytest.raises(StoreError, match="No space left"):
        drop(bench, 2)
    drop(bench, 2)
    assert bench.store.log.start == 16384


def save_vote(bench: Bench) -> None:
    bench.store.save_vote(bench.store.vote.epoch + 1, "-", False)


@pytest.mark.parametrize("work", [save_vote, snapshot])
def test_what_failed_is_worth_another_try(bench: Bench, work: Callable[[Bench], None]) -> None:
    filled(bench)
    fill_up(bench)
    bench.send()
    with pytest.raises((NoRoom, StoreError), match="No space left"):
        work(bench)
    work(bench)


def test_the_store_is_closed_in_order_and_opened_again(bench: Bench) -> None:
    bench.fill(5)
    fill_up(bench)
    bench.store.close()
    assert not bench.disk.exists(RESERVE)
    bench.open()
    assert bench.store.recovered.clean


def test_a_start_behind_a_kill_finds_room(bench: Bench) -> None:
    bench.fill(5)
    fill_up(bench)
    full, ended = bench.disk.before, bench.store.log.end
    bench.disk.kill()
    bench.disk.before = full
    assert bench.open().log.end == ended


@pytest.mark.parametrize("finds_room", [True, False])
def test_a_start_that_takes_several_attempts_behind_a_power_loss_says_so(bench: Bench, finds_room: bool) -> None:
    """Messages that were acknowledged may be lost: the first attempt had noted already that today's run goes on."""
    bench.fill(5)
    bench.disk.crash()

    def full(operation: str, path: str) -> None:
        if operation == "create" and path.endswith("/abort") and (bench.disk.exists(RESERVE) or not finds_room):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    bench.disk.before = full
    if not finds_room:
        with pytest.raises(StoreError, match="No space left"):
            bench.open()
        bench.disk.kill()
    assert bench.open().recovered.may_have_lost
    bench.disk.kill()
    assert not bench.open().recovered.may_have_lost, "that was a kill"


@pytest.mark.parametrize("step", ["allocate", "fdatasync"])
def test_a_kill_or_a_power_loss_while_it_is_made(bench: Bench, step: str) -> None:
    """It stayed empty, counted as held back, and no full disk freed itself."""
    for stop in (bench.disk.kill, lambda: bench.disk.crash(lambda: True)):
        bench.store.cleaning.hold_back()
        bench.disk.unlink(RESERVE)

        def stops(operation: str, path: str) -> None:
            if operation == step and path == RESERVE:
                raise PowerLoss

        bench.disk.before = stops
        with pytest.raises(PowerLoss):
            bench.store.cleaning.hold_back()
        for again in (stop, bench.disk.crash):
            again()
            bench.open()
            assert bench.disk.size(RESERVE) == reserve.BYTES


def test_a_disk_without_that_much_room_goes_without(bench: Bench) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "allocate":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    bench.disk.unlink(RESERVE)
    bench.disk.before = full
    bench.store.cleaning.hold_back()
    assert not bench.disk.exists(RESERVE)


def test_a_disk_that_does_not_even_take_a_deletion_ends_the_start(bench: Bench) -> None:
    """It must not be tried for ever."""
    bench.fill(5)
    bench.disk.kill()

    def full(operation: str, path: str) -> None:
        if operation in ("create", "allocate", "unlink"):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    bench.disk.before = full
    with pytest.raises(StoreError, match="No space left"):
        bench.open()


def test_a_next_segment_that_does_not_fit_takes_no_room(bench: Bench) -> None:
    """It took all that there was, and kept it: from then on everything was refused."""

    def full(operation: str, path: str) -> None:
        if operation == "allocate":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    bench.disk.before = full
    bench.send(b"x" * 2000)
    assert ("create", f"{ROOT}/rmq/next") in bench.disk.operations
    assert not bench.disk.exists(f"{ROOT}/rmq/next")
