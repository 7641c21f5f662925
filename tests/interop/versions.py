"""Java clients of several versions, and RocketMQ's own proxy, with a broker and nameserver of ours.

    python -m tests.interop.versions            # 4.5.1, 4.9.7, 5.3.3 and 5.5.0, then 5.5.0 through the proxy of 5.5.0
    python -m tests.interop.versions 4.9.7

Needs Maven and a JDK; the jars of each version stay in a cache.
"""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rmq.testing import LocalBroker
from tests.interop.java import CACHE, HERE, OPENED
from tests.interop.maven import fetch
from tests.ports import free_port

VERSIONS: Final = ("4.5.1", "4.9.7", "5.3.3", "5.5.0")
PROXY: Final = "5.5.0"
CAME: Final = {"single-0", "single-2", "batch-0", "batch-1", "oneway", "late", "kept", "again"}
NOT_BY_PROXY: Final = {"kept"}  # seen before RocketMQ's own broker, too: at its remoting port the proxy ends no transaction
ALL: Final = 10  # single-0 to -3, two of the batch, oneway, late, kept, again; nothing of what was rolled back

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>rmq</groupId>
<artifactId>versions</artifactId><version>1</version><packaging>pom</packaging><dependencies><dependency>
<groupId>org.apache.rocketmq</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
</dependency></dependencies></project>"""


def fetched(artifact: str, version: str, program: str = "Versions") -> Path:
    """A folder with `lib`, its jars, and `classes`, our program compiled with them."""
    folder = CACHE.parent / f"{artifact}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # the workers of one test run come at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "lib").is_dir():
            (folder / "pom.xml").write_text(_POM.format(artifact=artifact, version=version))
            fetch(folder / "pom.xml", folder / "lib")
        source, made = HERE / f"{program}.java", folder / "classes" / f"{program}.class"
        if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
            subprocess.run(["javac", "-nowarn", "-cp", f"{folder}/lib/*", "-d", str(folder / "classes"), str(source)], check=True)
    return folder


async def flow(version: str, nameserver: str) -> list[str]:
    """What the program of that version printed."""
    folder = fetched("rocketmq-client", version)
    return await printed(folder, "Versions", nameserver, "Orders", f"shop-{version.replace('.', '-')}")


async def printed(folder: Path, *words: str) -> list[str]:
    """What that program printed."""
    command = ["java", "-Xmx300m", *OPENED, f"-Duser.home={folder}", "-cp", f"{folder}/classes:{folder}/lib/*"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(120):
            async for line in process.stdout:
                lines.append(line.decode().rstrip())
            await process.wait()
    except TimeoutError:
        lines.append("it did not end")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return lines


def check(version: str, lines: list[str]) -> None:
    """Everything was sent and came, what failed came again, what was rolled back did not come."""
    words = [line.split() for line in lines]
    assert [one[1] for one in words if one[:1] == ["SENT"]] == ["SEND_OK"] * 5, (version, lines)
    came = {one[1]: one[2] for one in words if one[:1] == ["CAME"]}
    by_proxy = version == "proxy"
    assert came.keys() == CAME - (NOT_BY_PROXY if by_proxy else set()), (version, lines)
    assert came["again"] == "1", (version, lines)
    assert ["PULLED", str(ALL - by_proxy)] in words, (version, lines)


async def through_proxy(nameserver: str) -> list[str]:
    """Java's client of 5.5.0 at the remoting port of RocketMQ's proxy, which stands before our broker (cluster mode)."""
    async with proxy(nameserver) as (_, port):
        return await flow(PROXY, f"127.0.0.1:{port}")


@asynccontextmanager
async def proxy(nameserver: str, checks_types: bool = False, **more: object) -> AsyncIterator[tuple[int, int]]:
    """RocketMQ's proxy: its ports for gRPC and remoting. `checks_types`: as by default; else one topic takes all kinds. `more`:
    of its settings."""
    folder, grpc, port = fetched("rocketmq-proxy", PROXY), free_port(), free_port()
    with tempfile.TemporaryDirectory() as home:
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": nameserver,
            "proxyMode": "CLUSTER",
            "grpcServerPort": grpc,
            "remotingListenPort": port,
            "localServeAddr": "127.0.0.1",
            "enableTopicMessageTypeCheck": checks_types,
            **more,
        }
        file = Path(home) / "rmq-proxy.json"
        file.write_text(json.dumps(settings))
        command = ["java", "-Xmx400m", *OPENED, f"-Duser.home={home}", "-cp", f"{folder}/lib/*"]
        process = await asyncio.create_subprocess_exec(
            *command,
            "org.apache.rocketmq.proxy.ProxyStartup",
            "-pc",
            str(file),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "ROCKETMQ_HOME": home},
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(90):
                seen = []
                while b"startup successfully" not in (line := await process.stdout.readline()):
                    seen.append(line.decode())
                    assert line, "".join(seen)
            reading = asyncio.create_task(process.stdout.read())
            try:
                yield grpc, port
            finally:
                reading.cancel()
        finally:
            process.kill()
            await process.wait()


async def _main(versions: list[str]) -> None:
    for version in versions or VERSIONS:
        async with LocalBroker() as broker:
            await broker.create_topic("Orders", 2)
            check(version, await flow(version, broker.nameserver))
            print(f"rocketmq-client {version}: all came, what failed came again")
    if not versions:
        async with LocalBroker() as broker:
            await broker.create_topic("Orders", 2)
            check("proxy", await through_proxy(broker.nameserver))
            print(f"rocketmq-proxy {PROXY} in cluster mode: through it comes what comes before RocketMQ's own broker")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
