"""Who gets in, who may change, and that nobody else's page can do it for him."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq.cli import cli
from rmq.client import InvalidArgument
from rmq.dashboard.access import read_users, write_user
from rmq.dashboard.login import own_path
from rmq.dashboard.serve import Options
from rmq.testing import LocalBroker
from tests.dashboard.visitor import visiting

NOBODY = "127.0.0.1:1"  # no nameserver is needed to be refused


async def test_who_logs_in_may_look_and_only_the_role_for_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rmq.dashboard")
    users = tmp_path / "users"
    write_user(users, "ann", "write", "correct horse")
    write_user(users, "bob", "read", "battery staple")
    assert users.stat().st_mode & 0o777 == 0o600
    assert "correct" not in users.read_text()
    async with LocalBroker() as broker, visiting(broker.nameserver, tmp_path, users=users) as visitor:
        for path in ("/", "/topics", "/dead/export?group=g", "/node?address=x"):
            assert "Log in" in await visitor.get(path)
            assert "broker-a" not in visitor.text
        assert "role" in await visitor.post("/topic/save", name="T", broker="broker-a"), "not logged in"
        assert "do not belong together" in await visitor.post("/login", name="bob", password="wrong wrong")
        await visitor.get("/login")
        assert "Topics" in await visitor.post("/login", name="bob", password="battery staple", next="/topics")
        assert "may only look" in visitor.text
        assert "New topic" not in visitor.text
        await visitor.post("/topic/save", name="T", broker="broker-a")
        assert visitor.status == 403
        await visitor.post("/logout")
        assert "Log in" in await visitor.get("/")
        await visitor.post("/login", name="ann", password="correct horse")
        await visitor.get("/topics")
        assert "is saved" in await visitor.post("/topic/save", name="T", broker="broker-a")
        assert "no broker broker-b" in await visitor.post("/topic/save", name="T", broker=["broker-a", "broker-b"])
    _, refused, line, both = [record.getMessage() for record in caplog.records if record.name == "rmq.dashboard"]
    assert refused.startswith("/topic/save by bob from 127.0.0.1: failed with 403")
    assert line.startswith("/topic/save by ann from 127.0.0.1: done")
    assert "'name': 'T', 'broker': 'broker-a'" in line
    assert "'broker': ['broker-a', 'broker-b']" in both, "all that was ticked"
    assert "token" not in line


async def test_a_form_of_another_site_does_nothing(tmp_path: Path) -> None:
    async with LocalBroker() as broker, visiting(broker.nameserver, tmp_path) as visitor:
        await visitor.get("/topics")
        for token in ("", "guess"):
            await visitor.post("/topic/save", name="T", broker="broker-a", token=token)
            assert visitor.status == 403
        assert "No topic yet" in await visitor.get("/topics")
        answer = await visitor.http.get("/topics", headers={"Host": "attacker.example"})
        assert answer.status_code == 400, "a stranger's name for this address (DNS rebinding)"


async def test_a_form_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Its sender says how it is coded; in UTF-7 half a character may stand alone."""
    users = tmp_path / "users"
    write_user(users, "ann", "write", "correct horse")
    body = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n+2AA-\r\n--x--\r\n'
    kind = "multipart/form-data; boundary=x; charset=utf-7"
    async with visiting(NOBODY, tmp_path, users=users) as visitor:
        answer = await visitor.http.post("/login", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.text) == (415, "send the form as application/x-www-form-urlencoded")


async def test_read_only_and_behind_a_proxy(tmp_path: Path) -> None:
    async with LocalBroker() as broker, visiting(broker.nameserver, tmp_path, read_only=True) as visitor:
        assert "may only look" in await visitor.get("/topics")
        await visitor.post("/topic/save", name="T", broker="broker-a")
        assert visitor.status == 403
    async with LocalBroker() as broker, visiting(broker.nameserver, tmp_path, root="/rmq") as visitor:
        page = (await visitor.http.get("/", follow_redirects=False)).text
        assert 'href="/rmq/static/style.css"' in page
        assert 'href="/rmq/topics"' in page


async def test_guessing_passwords_is_stopped(tmp_path: Path) -> None:
    users = tmp_path / "users"
    write_user(users, "ann", "write", "correct horse")
    async with visiting(NOBODY, tmp_path, users=users) as visitor:
        await visitor.get("/login")
        for _ in range(10):
            await visitor.post("/login", name="ann", password="a guess or two")
            assert visitor.status == 401
        assert "too many wrong passwords" in await visitor.post("/login", name="ann", password="correct horse")


@pytest.mark.parametrize("wanted", ["//evil", "https://evil", "/\\evil", "javascript:x", "", "/a\nb", "//[", "//℀"])
def test_nobody_is_led_elsewhere_after_the_login(wanted: str) -> None:
    assert own_path(wanted) == "/"
    assert own_path("/topics?q=a&page=2") == "/topics?q=a&page=2"


def test_others_reach_it_only_when_somebody_meant_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="rmq dashboard user"):
        Options(host="0.0.0.0", data=tmp_path).checked()
    assert Options(host="0.0.0.0", data=tmp_path, open=True).checked()


def test_users_are_made_by_a_command(tmp_path: Path) -> None:
    file = tmp_path / "users"
    environment = {"RMQ_DASHBOARD_PASSWORD": "correct horse"}
    made = CliRunner().invoke(cli, ["dashboard", "user", str(file), "ann", "--role", "write"], env=environment)
    assert made.exit_code == 0, made.output
    assert CliRunner().invoke(cli, ["dashboard", "user", str(file), "ann"], env=environment).exit_code == 0
    assert {name: user.role for name, user in read_users(file).items()} == {"ann": "read"}
    for text in ("ann:root:00:00\n", "ann\n", "# nobody\n"):
        file.write_text(text)
        with pytest.raises(InvalidArgument):
            read_users(file)
