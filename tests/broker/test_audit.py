"""Each administrative act leaves a line: who, from where, what, before and after, done or refused."""

import json
import logging
from typing import Any

import pytest

from rmq.codes import ResponseCode
from rmq.commands.shared.logs import JsonFormatter
from rmq.guard.audit import ADMINISTRATIVE
from rmq.net.commands import CreateUser, DeleteTopic, Ping, Send, UpdateTopic
from rmq.net.commands.access import PolicyEntry
from rmq.testing import LocalBroker, until
from tests.broker.support import send
from tests.broker.test_access import SETTINGS, login, make_user


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """As the node writes them."""
    return [json.loads(JsonFormatter().format(one)) for one in caplog.records if one.name == "rmq.audit"]


async def test_what_was_done_and_what_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    """S12: no password is in the log, and sends leave no line."""
    caplog.set_level(logging.INFO)
    async with LocalBroker(**SETTINGS) as broker:
        await until(lambda: broker.serving.tables.users.get("root"))
        root = await login(broker, "root", "root-secret")
        await root.ask(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2))
        await root.ask(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4))
        await root.send(send("T"))
        assert await root.refusal(UpdateTopic("not allowed")) != 0
        await root.ask(DeleteTopic("T"))
        await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
        bob = await login(broker, "bob", "bob-secret")
        assert await bob.refusal(DeleteTopic("U")) == ResponseCode.NO_PERMISSION
        await root.close()
        await bob.close()
    told = lines(caplog)
    made, changed, bad, gone, *users, denied = told
    assert [(one["what"], one["outcome"], one["user"]) for one in (made, changed, bad, gone, denied)] == [
        ("UpdateTopic", "done", "root"),
        ("UpdateTopic", "done", "root"),
        ("UpdateTopic", "refused", "root"),
        ("DeleteTopic", "done", "root"),
        ("DeleteTopic", "refused", "bob"),
    ]
    assert all(one["id"].startswith(f"{one['source']}#") for one in told)
    assert "before" not in made
    assert (changed["before"]["read_queue_nums"], changed["after"]["read_queue_nums"]) == (2, 4)
    assert (gone["before"]["name"], gone["request"]) == ("T", {"topic": "T"})
    assert "no permission" in denied["why"]
    assert (made["source"].partition(":")[0], made["client"]) == ("127.0.0.1", "client of root")
    assert "CreateUser" in {one["what"] for one in users}
    assert "bob-secret" not in json.dumps(told)


def test_only_administrative_requests_cost_anything() -> None:
    assert {UpdateTopic, DeleteTopic, CreateUser} <= ADMINISTRATIVE
    assert not {Send, Ping} & ADMINISTRATIVE
