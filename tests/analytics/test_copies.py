"""Several directories in one job: paths that name many, copies of one log, other file systems, links."""

import json
import os
import shutil
from pathlib import Path

import pytest

from rmq.errors import BadBytes, InvalidArgument, StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import Vote, save_vote
from rmq.log.records.record import draft, host_bytes
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from rmq.ops.places import place_of
from tests.analytics.stores import Sent, commit, live, write_store

pa = pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.records.batches import batches  # noqa: E402 -- needs the extra
from analytics.stores import files  # noqa: E402 -- needs the extra
from analytics.stores.copies import plan_all  # noqa: E402 -- needs the extra
from analytics.stores.options import Wanted  # noqa: E402 -- needs the extra
from analytics.stores.paths import stores_at  # noqa: E402 -- needs the extra
from analytics.stores.rare import Places  # noqa: E402 -- needs the extra
from analytics.stores.walk import missing  # noqa: E402 -- needs the extra
from tests.analytics.remote import NO_S3, upload  # noqa: E402 -- needs the extra

SEGMENT = 2048  # holds four messages
HOST = host_bytes("127.0.0.1", 10911)
SCHEMA = pa.schema([("body", pa.binary()), ("broker_name", pa.string())])


def messages(letter: str, count: int = 12) -> list[Sent]:
    return [Sent("T", f"{letter}{number:02}".encode() * 100, time_ms=1_795_230_000_000 + number) for number in range(count)]


def read(*paths: Path | str, **wanted: object) -> list[str]:
    """The first three letters of each body, in order."""
    asked = Wanted()._replace(**wanted)
    planned = plan_all(stores_at({"paths": json.dumps(list(map(str, paths)))}), asked)
    rows = [row for broker, parts in planned for batch in batches(parts, asked, SCHEMA, broker) for row in batch.to_pylist()]
    return sorted(row["body"][:3].decode() for row in rows)


def numbered(letter: str, *numbers: int) -> list[str]:
    return [f"{letter}{number:02}" for number in numbers]


def copy(store: Path, name: str, *left_out: int) -> Path:
    """Of the store without some of its files."""
    made = Path(shutil.copytree(store, store.with_name(name)))
    for number in left_out:
        (made / "commitlog" / f"{number * SEGMENT:020}").unlink()
    return made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three files of four messages, all committed."""
    offsets = write_store(tmp_path / "a", messages("a"), SEGMENT)
    commit(tmp_path / "a", offsets[11] + offsets[11] - offsets[10])
    return tmp_path / "a"


def test_brokers_are_read_side_by_side(store: Path, tmp_path: Path) -> None:
    write_store(tmp_path / "b", messages("b"), SEGMENT)
    assert read(store, tmp_path / "b") == numbered("a", *range(12)) + numbered("b", *range(12))
    assert read(f"{tmp_path}/*") == read(f"{tmp_path}/[ab]") == read(f"{tmp_path}/{{b,a}}", store)
    with pytest.raises(InvalidArgument, match='"startingOffsets" is of one broker'):
        read(f"{tmp_path}/*", starts={"T": {0: 3}})
    for name in ("a", "b"):
        (tmp_path / name / "consumequeue" / "T").mkdir(parents=True)
    with pytest.raises(InvalidArgument, match="the stores have no topic 'U'"):
        read(f"{tmp_path}/*", topics=frozenset({"U"}))


def test_a_path_is_one_or_many(store: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(store, tmp_path / "a[1]"))
    (tmp_path / "README").touch()
    assert stores_at({"path": str(odd)}) == [odd], "a name with a bracket is no pattern where it is there"
    assert stores_at({"path": f"file:{store}"}) == stores_at({"path": str(store), "paths": f'["{store}"]'}) == [store]
    assert stores_at({"path": f"{tmp_path}/*"}) == [store, odd], "a file beside stores does not matter"
    with pytest.raises(InvalidArgument, match="no store directory .* matches"):
        stores_at({"path": f"{tmp_path}/b*"})
    with pytest.raises(InvalidArgument, match='"path" is missing'):
        stores_at({})
    with pytest.raises(InvalidArgument, match="nowhere://host/ cannot be reached"):
        stores_at({"path": "nowhere://host/store"})


def test_copies_count_once(store: Path) -> None:
    """Whatever each has lost or not got yet: the union counts."""
    behind = copy(store, "behind")
    commit(behind, SEGMENT + 412)
    retained = copy(store, "retained", 0, 1)
    shutil.rmtree(copy(store, "archive", 2) / "rmq")
    archive = store.with_name("archive")
    every = numbered("a", *range(12))
    assert read(store, store) == read(store, behind) == read(behind, store) == read(behind, retained, archive) == every
    assert read(archive, retained) == every, "an archive of older files, and the store that lost them"
    assert read(archive, behind) == numbered("a", *range(8))
    assert len(read(behind)) < 8


def test_a_file_that_no_copy_has_is_missed(store: Path) -> None:
    first, last = copy(store, "first", 1, 2), copy(store, "last", 0, 1)
    shutil.rmtree(first / "rmq")
    with pytest.raises(BadBytes, match=f"stops at {SEGMENT} and goes on at {2 * SEGMENT}"):
        read(copy(store, "both", 1), first)
    assert read(first, last) == numbered("a", *range(4), *range(8, 12)), "two logs for all that anybody can say"


def test_a_file_that_was_cut_is_read_from_another_copy(store: Path) -> None:
    """In whatever order they are given; also from one that ends in that file, as far as that one goes."""
    cut = copy(store, "cut")
    os.truncate(cut / "commitlog" / f"{SEGMENT:020}", 600)
    behind = copy(store, "behind", 2)
    commit(behind, 2 * SEGMENT - 1000)
    assert read(store, cut) == read(cut, store) == read(cut, behind, store) == numbered("a", *range(12))
    for paths in ((cut, behind), (behind, cut)):
        with pytest.raises(BadBytes, match=f"stops at {2 * SEGMENT - 1000} and goes on at {2 * SEGMENT}"):
            read(*paths)


def test_archives_of_a_last_file_that_grew(store: Path) -> None:
    """Nobody has noted how far they are: the longer one counts, also beside a store that is behind."""
    shutil.rmtree(store / "rmq")
    short = copy(store, "short")
    file = short / "commitlog" / f"{2 * SEGMENT:020}"
    file.write_bytes(file.read_bytes()[:500].ljust(SEGMENT, b"\0"))
    assert len(read(short)) == 9
    for paths in ((store, short), (short, store)):
        assert read(*paths) == numbered("a", *range(12))
    commit(short, 2 * SEGMENT)
    assert read(short, store) == numbered("a", *range(12))
    commit(short, 3 * SEGMENT)
    with pytest.raises(BadBytes, match="CommitLog at"):
        read(short, store)


def test_what_is_committed_and_nowhere_is_missed(store: Path) -> None:
    last, archive = copy(store, "last", 2), copy(store, "archive", 2)
    shutil.rmtree(archive / "rmq")
    with pytest.raises(BadBytes, match="is missing or was cut"):
        read(last, archive)


def test_copies_that_are_not_alike_are_refused(store: Path) -> None:
    other = copy(store, "other")
    file = other / "commitlog" / f"{SEGMENT:020}"
    raw = bytearray(file.read_bytes())
    raw[80] ^= 1
    file.write_bytes(raw)
    with pytest.raises(StoreError, match=f"differ in the file at {SEGMENT}"):
        read(store, other)


def rmqs(path: Path, segment_bytes: int, topics: list[str]) -> list[str]:
    """A store of rmq's own making that was closed, and the beginnings of its bodies."""
    made = Store.open(RealDisk(), str(path), StoreSettings(HOST, segment_bytes=segment_bytes, group=path.name))
    made.open_epoch(1_795_230_000_000)
    bodies = [f"{path.name[0]}{number:02}" for number in range(len(topics))]
    for topic, body in zip(topics, bodies, strict=True):
        record = draft(topic, body.encode() * 100, b"", born_timestamp=1, born_host=HOST)
        made.log.append([Unit(record, (len(record),), (0,), made.queues.get(topic, 0))], 1_795_230_000_000)
    made.dispatcher.advance(made.log.flush())
    made.save_progress()
    made.close()
    return bodies


def test_epochs_tell_that_logs_are_one(tmp_path: Path) -> None:
    """A leader's store and its follower's without a file in common: what lies between is missed; other epochs are another log."""
    size = 4096
    bodies, others = rmqs(tmp_path / "leader", size, ["T"] * 48), rmqs(tmp_path / "stranger", size, ["T"] * 48)
    follower, older = copy(tmp_path / "leader", "follower"), copy(tmp_path / "leader", "older")
    for file in (follower / "commitlog").iterdir():
        if int(file.name) < 3 * size:
            file.unlink()
    for file in (older / "commitlog").iterdir():
        if int(file.name) >= 2 * size:
            file.unlink()
    commit(older, 2 * size)
    with pytest.raises(BadBytes, match=f"stops at {2 * size} and goes on at {3 * size}"):
        read(older, follower)
    assert read(tmp_path / "leader", follower) == bodies
    assert read(tmp_path / "leader", tmp_path / "stranger", follower) == bodies + others
    planned = plan_all([tmp_path / "leader", follower, tmp_path / "stranger"], Wanted())
    assert {broker for broker, _ in planned} == {"leader", "stranger"}


def test_rare_topics_of_each_log_are_read_through_its_queues(tmp_path: Path) -> None:
    topics = ["Often" if number % 20 else "Rare" for number in range(100)]
    bodies = rmqs(tmp_path / "one", 1 << 14, topics) + rmqs(tmp_path / "two", 1 << 14, topics)
    copy(tmp_path / "one", "copy")
    rare = Wanted(topics=frozenset({"Rare"}))
    planned = plan_all(stores_at({"path": f"{tmp_path}/*"}), rare)
    assert all(isinstance(part, Places) for _, parts in planned for part in parts)
    assert read(f"{tmp_path}/*", topics=rare.topics) == bodies[::20]


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["commitlog", f"commitlog/{0:020}", "rmq", "consumequeue", "config/topics.json"])
def test_a_link_inside_a_store_is_refused(store: Path, name: str) -> None:
    """The broker's own rule (S13); that the store itself is found through one is its user's choice."""
    (store / "config").mkdir()
    (store / "config" / "topics.json").touch()
    (store / "consumequeue").mkdir()
    store.with_name("link").symlink_to(store)
    assert len(read(store.with_name("link"))) == 12
    elsewhere = (store / name).rename(store.with_name("elsewhere"))
    (store / name).symlink_to(elsewhere)
    with pytest.raises(StoreError, match=f"{name} is a symbolic link"):
        read(store)


# --- other file systems -----------------------------------------------------------------------------------------------


def test_a_store_in_memory(store: Path) -> None:
    reads_as_here(store, "mock://")


def test_what_is_unread_elsewhere(store: Path) -> None:
    """As exports and tables read it: an archive in another file system first, then the store goes on where that ends."""
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    from analytics.landing.unread import unread

    shutil.rmtree(copy(store, "elsewhere", 2) / "rmq")
    upload(store.with_name("elsewhere"), "mock://archives/a")
    wanted, archive = Wanted(allow_missing=True), files.directory("mock://archives/a")
    first = unread([archive], wanted, {})
    second = unread([archive, store], wanted, first.marks)
    schema = pa.schema([("body", pa.binary())])
    found = [
        sum(batch.num_rows for broker, parts in each.tasks for batch in batches(parts, wanted, schema, broker))
        for each in (first, second)
    ]
    assert found == [8, 4]
    assert unread([archive, store], wanted, second.marks).tasks == []
    with pytest.raises(InvalidArgument, match="nowhere is not a store directory"):
        unread([store, store.with_name("nowhere")], wanted, {})


def test_what_is_unread_of_a_log_that_got_a_name(store: Path) -> None:
    """An archive has only an address, and so has a directory of RocketMQ before it is adopted: the log goes on under that."""
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    from analytics.landing.unread import Unread, unread

    def found(each: Unread) -> list[str]:
        schema = pa.schema([("body", pa.binary())])
        tasks = [batch for broker, parts in each.tasks for batch in batches(parts, wanted, schema, broker)]
        return sorted(row["body"][:3].decode() for batch in tasks for row in batch.to_pylist())

    wanted, address = Wanted(allow_missing=True), "127.0.0.1:10911"
    shutil.rmtree(copy(store, "archive", 2) / "rmq")
    archive = store.with_name("archive")
    first = unread([archive], wanted, {})
    assert (found(first), [*first.marks]) == (numbered("a", *range(8)), [address])
    save_vote(RealDisk(), str(store / "rmq"), Vote("0" * 16, "n0", "broker-a", 1, "-", 1, True))
    for paths in ([store], [store, archive], [archive, store]):
        second = unread(paths, wanted, first.marks)
        assert (found(second), [*second.marks]) == (numbered("a", *range(8, 12)), [address])
        assert unread([archive, store], wanted, second.marks).tasks == []
        both = unread(paths, wanted, {})
        assert (found(both), [*both.marks]) == (numbered("a", *range(12)), ["broker-a"]), "in one run, too"
    twice = {address: first.marks[address], "broker-a": both.marks["broker-a"]}
    assert unread([store], wanted, twice).tasks == [], "as runs of before have left it"


def test_a_log_that_was_made_anew_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    """A directory of RocketMQ has no name but its address. The new one's messages were left out, without a word, until it had
    grown past what was read of the old one."""
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    from analytics.landing.unread import unread

    wanted, old = Wanted(allow_missing=True), tmp_path / "old"
    write_store(old, messages("a") * 2, SEGMENT)
    assert len(list((old / "commitlog").iterdir())) > 3, "more than a mark remembers"
    first = unread([old], wanted, {})
    for name, count in (("anew", 2), ("again", 4)):
        write_store(tmp_path / name, messages("b")[:count], SEGMENT)
        with pytest.raises(StoreError, match="made anew"):
            unread([tmp_path / name], wanted, first.marks)
    assert unread([old], wanted, first.marks).tasks == []
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    assert unread([tmp_path / "empty"], wanted, first.marks).tasks == []


def test_a_log_that_goes_on_otherwise_is_another_one(tmp_path: Path) -> None:
    """A slave was promoted without the last messages, or a backup put in place: the new ones with their bytes were left out."""
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    from analytics.landing.unread import unread

    wanted, old, backup = Wanted(allow_missing=True), tmp_path / "old", tmp_path / "backup"
    with live(old) as store:
        store.put("T", [b"x" * 300] * 3)
        shutil.copytree(old, backup)
        store.put("T", [b"x" * 300] * 3)
        first = unread([old], wanted, {})
        assert unread([backup], wanted, first.marks).tasks == [], "a copy that is behind"
    with live(old) as store:  # it was restarted, which begins an epoch
        store.put("T", [b"x" * 300])
        assert unread([old], wanted, first.marks).tasks
    for count in (1, 9):  # less and more than was read before
        with live(backup) as store:
            store.put("T", [b"y" * 300] * count)
            with pytest.raises(StoreError, match="lost messages that were read"):
                unread([backup], wanted, first.marks)


def test_a_store_in_s3(store: Path, s3: str) -> None:
    if not s3:
        pytest.skip(NO_S3)
    reads_as_here(store, s3)


def reads_as_here(store: Path, address: str) -> None:
    """Stores in another file system, and beside their copies on this machine."""
    base, _, query = address.partition("?")
    query = query and f"?{query}"
    write_store(store.with_name("b"), messages("b"), SEGMENT)
    for name in ("a", "b"):
        upload(store.with_name(name), f"{base}/stores/{name}{query}")
    every = numbered("a", *range(12)) + numbered("b", *range(12))
    assert read(f"{base}/stores/*{query}") == read(store, f"{base}/stores/{{a,b}}{query}") == every
    assert read(f"{base}/stores/a{query}", topics=frozenset({"T"})) == numbered("a", *range(12))
    (store / "commitlog" / f"{0:020}").unlink()
    assert read(store, f"{base}/stores/a{query}") == numbered("a", *range(12))
    with pytest.raises(InvalidArgument, match="is not a store directory"):
        read(f"{base}/stores{query}")


def test_keys_in_an_address_are_told_to_nobody() -> None:
    """The page of a report, its files, what commands print and their errors name the stores; the keys in an address stay out."""
    place = files.directory("s3a://key:hunter2@bucket/store?region=us-east-1")
    assert isinstance(place, files.Remote)
    assert place.full == "s3://key:hunter2@bucket/store?region=us-east-1"
    assert str(place / "commitlog") == "s3://***@bucket/store/commitlog?region=us-east-1"
    assert str(missing(place.full)).startswith("s3://***@bucket/store?region=us-east-1 is gone")
    archive = "s3://key:hunter2@bucket/archive?region=us-east-1"
    assert place_of(archive).name == "s3://***@bucket/archive?region=us-east-1"
    for look in (files.directory, place_of):
        with pytest.raises(InvalidArgument) as told:
            look("s3://key:hunter2@bucket/store?secret_key=hunter2")
        assert "hunter2" not in str(told.value)
        assert "s3://***@bucket" in str(told.value)
