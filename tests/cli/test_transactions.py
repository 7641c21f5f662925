"""A transaction that was put aside is begun anew from the command line."""

import asyncio
import json

import pytest

from rmq import cli
from rmq.commands.shared import exits
from rmq.testing import LocalBroker, until
from tests.broker.support import Peer, beat
from tests.broker.transactions import checks, half


async def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = await asyncio.to_thread(cli.run, [*arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


async def test_what_was_put_aside_is_found_and_asked_after_again(capsys: pytest.CaptureFixture[str]) -> None:
    """C12: by the id that `rmq msg print` shows."""
    soon = {"transaction_check_interval_ms": 500, "transaction_timeout_ms": 0, "transaction_check_max": 1}
    async with LocalBroker(**soon) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.ask(beat("c"))
        await peer.send(half(b"forgotten"))
        await until(lambda: broker.serving.tables.halves.ended.rows)
        aside, namesrv = "TRANS_CHECK_MAX_TIME_TOPIC", ("-n", broker.nameserver)
        printed = await run(capsys, "msg", "print", aside, "-o", "json", *namesrv)
        found = json.loads(printed[1].splitlines()[0])
        before = len(checks(peer))
        code, out, _ = await run(capsys, "admin", "resumeCheckHalfMessage", "-i", found["offset_message_id"], *namesrv)
        assert (code, out.split()[0]) == (exits.OK, found["offset_message_id"])
        await until(lambda: len(checks(peer)) > before)
        wrong = found["offset_message_id"][:-4] + "0000"
        assert (await run(capsys, "admin", "resumecheckhalfmessage", "-i", wrong, *namesrv))[0] == exits.FAILED
        await peer.close()
