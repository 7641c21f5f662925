"""The way out for a group that believed in an epoch near the last number there is: nothing is lost by it (R3, R8, D15)."""

import shutil
from pathlib import Path

import pytest

from rmq import cli
from rmq.commands.shared import exits
from rmq.errors import StoreError
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.files.epochs import START, EpochEntry, EpochRecord
from rmq.log.repair import lowering
from rmq.log.replicated import ReplicatedLog
from rmq.log.settings import StoreSettings
from rmq.log.store import Store
from rmq.net.commands import UpdateTopic
from rmq.raft.trust import MAX_LEAP
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.support import bodies, send

ABSURD = 2**63 - 1
DISK = RealDisk()
SETTINGS = StoreSettings(b"\x7f\0\0\1\0\0*\x9f", segment_bytes=16 << 20, group=GROUP, alone=False)


async def stopped_group(folder: Path) -> LocalGroup:
    """With one message, and an epoch of its own."""
    group = LocalGroup(folder)
    await group.__aenter__()
    client = await group.connect(await group.leader())
    await client.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await client.send(send("T", b"kept"))
    await group.level()
    await group.stop(*group.nodes)
    return group


def vote_absurdly(group: LocalGroup, name: str, epoch: int) -> None:
    """As releases did that believed every vote."""
    own = f"{group.store(name)}/rmq"
    vote = ownfiles.load_vote(DISK, own)
    assert vote is not None
    ownfiles.save_vote(DISK, own, vote._replace(epoch=epoch, voted_for="-"))


def lead_absurdly(group: LocalGroup, *epochs: int) -> None:
    """One was elected by them as well, so that all logs have it."""
    first, *others = (group.store(f"n{number}") for number in range(3))
    store = Store.open(DISK, str(first), SETTINGS)
    log = ReplicatedLog(store, DISK, str(first))
    for epoch in epochs:
        entry = EpochEntry(epoch, store.log.end, store.vote.store_id)
        store.epochs = (*store.epochs, entry)
        voters = log.voter_lists()[-1][1]
        log.append_epoch(EpochRecord(*entry[:3], "n0", START, False, voters, store.epochs), 1_700_000_000_000)
    store.close()
    for other in others:
        vote = (other / "rmq" / "vote").read_bytes()
        shutil.rmtree(other)
        shutil.copytree(first, other)
        (other / "rmq" / "vote").write_bytes(vote)
    for name in ("n0", "n1", "n2"):
        vote_absurdly(group, name, epochs[-1])


def in_reach(text: str) -> tuple[str, int]:
    """What is out of reach, and the newest that is not, as the command tells it."""
    wild, _, kept = text.partition("out of reach: ")[2].partition("; in reach: ")
    return wild, int(kept)


@pytest.mark.parametrize("led", [(), (ABSURD - 1,), (2**40, 2**62, ABSURD)], ids=["voted", "led", "led often"])
async def test_a_group_with_an_absurd_epoch_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], led: tuple[int, ...]
) -> None:
    group = await stopped_group(tmp_path)
    try:
        if led:
            lead_absurdly(group, *led)
        for number, epoch in enumerate((2**70, ABSURD, 2**62) if not led else ()):
            vote_absurdly(group, f"n{number}", epoch)
        with pytest.raises(StoreError, match="rmq store epochs"):
            await group.start("n0")
        group.nodes.clear()
        stores = [str(group.store(f"n{number}")) for number in range(3)]
        told = []
        for store in stores:
            assert cli.run(["store", "epochs", store]) == exits.OK
            told.append(in_reach(capsys.readouterr().out))
        wild, after = ",".join(text for text, _ in told), str(max(kept for _, kept in told))
        for store in stores:
            assert cli.run(["store", "epochs", store, "--lower", wild, "--after", after, "--yes"]) == exits.OK
            assert cli.run(["store", "verify", store]) == exits.OK
            assert "all are in reach" in _shown(store, capsys)
        await group.start("n0", "n1", "n2")
        await group.clock.advance(3)
        leader = await group.leader()
        client = await group.connect(leader)
        assert bodies(await client.pull("T", 0)) == [b"kept"]
        assert (await client.send(send("T", b"new")))[0].queue_offset == 1
        await group.level()
        assert (await group.status(leader)).epoch < 100
    finally:
        await group.__aexit__(None, None, None)


def _shown(store: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.run(["store", "epochs", store]) == exits.OK
    return capsys.readouterr().out


@pytest.fixture
async def bricked(tmp_path: Path) -> Path:
    """A stopped node whose log and vote name an absurd epoch."""
    group = await stopped_group(tmp_path)
    lead_absurdly(group, ABSURD)
    await group.__aexit__(None, None, None)
    return group.store("n0")


@pytest.mark.parametrize(
    ("lower", "after", "about"),
    [
        ("5", "3", "lacks"),
        (f"{ABSURD},5", "3", "nobody can have held"),
        (str(ABSURD), "0", "take the largest"),
        ("x", "3", "epochs separated by commas"),
    ],
)
async def test_wrong_numbers_are_refused(
    bricked: Path, capsys: pytest.CaptureFixture[str], lower: str, after: str, about: str
) -> None:
    code = cli.run(["store", "epochs", str(bricked), "--lower", lower, "--after", after, "--yes"])
    assert code != exits.OK
    assert about in capsys.readouterr().err
    assert lowering.look(DISK, str(bricked)).out_of_reach(MAX_LEAP) == (ABSURD,)


async def test_an_interrupted_lowering_is_finished(bricked: Path) -> None:
    """Wherever it was stopped, the next run ends it, and nothing is damaged then."""
    root = str(bricked)
    copy = bricked.parent / "whole"
    shutil.copytree(bricked, copy)
    lowering.lower(DISK, str(copy), {ABSURD: 9})
    for step in ("journal", "records", "epochs"):
        torn = bricked.parent / step
        shutil.copytree(bricked, torn)
        (torn / "rmq" / ownfiles.LOWERING).write_bytes(_journal_of(root))
        if step == "records":
            shutil.rmtree(torn / "commitlog")
            shutil.copytree(copy / "commitlog", torn / "commitlog")
        elif step == "epochs":
            shutil.copy(copy / "rmq" / "epochs", torn / "rmq" / "epochs")
        assert cli.run(["store", "epochs", str(torn)]) == exits.OK
        assert lowering.look(DISK, str(torn)) == lowering.look(DISK, str(copy))
        assert cli.run(["store", "verify", str(torn)]) == exits.OK
        assert not (torn / "rmq" / ownfiles.LOWERING).exists()


async def test_nothing_is_done_with_a_store_whose_lowering_was_interrupted(
    bricked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record that is half written is no torn end, nor damage; and completed it would go over what a node wrote meanwhile."""
    root, log = str(bricked), bricked / "commitlog" / f"{0:020d}"
    before = log.read_bytes()
    (bricked / "rmq" / ownfiles.LOWERING).write_bytes(_journal_of(root))
    with pytest.raises(StoreError, match="run `rmq store epochs"):
        Store.open(DISK, root, SETTINGS)
    assert cli.run(["store", "repair", root, "--yes"]) != exits.OK
    assert "run `rmq store epochs" in capsys.readouterr().err
    assert log.read_bytes() == before
    assert cli.run(["store", "epochs", root]) == exits.OK
    Store.open(DISK, root, SETTINGS).close()


def _journal_of(root: str) -> bytes:
    """What a run saves before it changes anything."""
    kept: list[bytes] = []

    class Stopping(RealDisk):
        def unlink(self, path: str) -> None:
            if path.endswith(ownfiles.LOWERING):
                kept.append(Path(path).read_bytes())
            super().unlink(path)

    copy = Path(f"{root}-journal")
    shutil.copytree(root, copy)
    lowering.lower(Stopping(), str(copy), {ABSURD: 9})
    shutil.rmtree(copy)
    return kept[0]
