"""Every Python block of the developers' guide runs, in order, against a real broker; importing the client stays cheap."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import rmq.client
from rmq.client import Client, ClientSettings
from rmq.testing import LocalBroker
from tests.broker.litepops import bound
from tests.broker.support import Peer
from tests.broker.test_lights import LIGHT
from tests.broker.test_lites import parent

GUIDE = Path(__file__).parents[2] / "docs" / "developers.md"


@pytest.fixture
async def rmq_broker() -> AsyncIterator[LocalBroker]:
    """Serves light queues, too; has the topic and the group of the example of lite topics."""
    async with LocalBroker(**LIGHT) as broker:
        administrator = await Peer.connect(broker.address)
        await administrator.ask(parent("Sessions"))
        await administrator.ask(bound("agents", "Sessions"))
        await administrator.close()
        yield broker


async def test_the_guides_examples_run(
    rmq_broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = GUIDE.read_text().replace("127.0.0.1:9876", rmq_broker.nameserver)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 9
    async with Client(rmq_broker.nameserver, settings=ClientSettings(hand_over_s=0.05)) as client:
        names: dict[str, Any] = {"client": client}
        for block in blocks:
            source = block.replace("asyncio.run(main())", "await main()")
            code = compile(source, GUIDE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            async with asyncio.timeout(30):
                result = eval(code, names)  # text of our own repository
                if inspect.isawaitable(result):
                    await result
    printed = capsys.readouterr().out
    assert "b'one coffee'" in printed
    assert "0 behind" in printed


def test_the_errors_of_the_guides_table_are_the_clients() -> None:
    names = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert {"Refusal", "BadBytes", "StoreError"} <= {*names}
    assert {*names} <= {*rmq.client.__all__}


def test_importing_the_client_loads_nothing_heavy() -> None:
    heavy = [
        "pyspark",
        "pandas",
        "pyarrow",
        "rich",
        "click",
        "aiofiles",
        "opentelemetry",
        "orjson",
        "rmq.broker",
        "rmq.log.store",
    ]
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys, rmq.client; print([m for m in {heavy} if m in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
        cwd=GUIDE.parents[1],
    )
    assert shown.stdout.strip() == "[]"
