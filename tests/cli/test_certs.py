"""`rmq certs make`, and commands that reach a cluster by what it made."""

import asyncio
import os
from pathlib import Path

import pytest

from rmq import cli
from rmq.clock import SystemClock
from rmq.commands.shared import exits
from rmq.ops.certs import Authority
from rmq.testing import LocalBroker, TestClock


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and everything printed."""
    capsys.readouterr()
    code = cli.run(arguments)
    printed = capsys.readouterr()
    return code, printed.out + printed.err


async def test_first_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "certs"
    assert run(capsys, "certs", "make", str(folder))[0] == exits.OK
    first = (folder / "node.pem").read_bytes()
    ca = (folder / "ca.pem").read_bytes()
    for name in ("node", "alice"):
        assert run(capsys, "certs", "make", str(folder), "--name", name, "--host", "127.0.0.1")[0] == exits.OK
    assert (folder / "ca.pem").read_bytes() == ca
    assert (folder / "node.pem").read_bytes() != first
    assert all(file.stat().st_mode & 0o777 == (0o644 if file.suffix == ".pem" else 0o600) for file in folder.iterdir())
    assert {file.stem for file in folder.iterdir()} == {"ca", "node", "alice"}
    files = {"tls_cert": str(folder / "node.pem"), "tls_key": str(folder / "node.key"), "tls_ca": str(folder / "ca.pem")}
    async with LocalBroker(tls_mode="enforcing", tls_client_auth="require", **files) as broker:
        list_topics = ("admin", "topicList", "-n", broker.nameserver)
        shown = ("--tls-cert", str(folder / "alice.pem"), "--tls-key", str(folder / "alice.key"))
        trusted = ("--tls-ca", str(folder / "ca.pem"))

        async def told(*options: str) -> tuple[int, str]:
            return await asyncio.to_thread(run, capsys, *list_topics, *options)

        assert (await told(*shown, *trusted))[0] == exits.OK
        assert (await told())[0] == exits.UNREACHABLE
        code, text = await told(*trusted)
        assert code == exits.UNREACHABLE
        assert "certificate" in text
        assert (await told(*shown, "--tls"))[0] == exits.UNREACHABLE
        code, text = await told(*shown)
        assert "whom to trust" in text
        for variable, value in zip(("CERT", "KEY", "CA"), (shown[1], shown[3], trusted[1]), strict=True):
            monkeypatch.setenv(f"RMQ_TLS_{variable}", value)
        assert (await told())[0] == exits.OK
        assert (await asyncio.to_thread(run, capsys, "health", "-n", broker.nameserver))[0] == exits.OK


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["--name", "ca"], "authority"),
        (["--name", "../x"], "letters, digits"),
        (["--days", "0"], "1<=x<=3650"),
        (["--host", "caf\xe9.example"], "xn--"),
        (["--host", "127.0.0.1", "--host", "10.0.0.1:9876"], "without a port"),
        (["--host", ""], "needed"),
    ],
)
def test_names_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], about: str) -> None:
    code, text = run(capsys, "certs", "make", str(tmp_path / "certs"), *arguments)
    assert (code, about in text) == (exits.USAGE, True)
    assert not (tmp_path / "certs").exists()


def test_an_authority_of_others_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("theirs")
    code, text = run(capsys, "certs", "make", str(tmp_path))
    assert (code, "cannot be used" in text) == (exits.USAGE, True)
    assert (tmp_path / "ca.pem").read_text() == "theirs"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_that_root_renews_stay_their_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node runs as a user of its own (conf/systemd), and could not read its new key or secret."""
    users = str(tmp_path / "users")
    add_user = ("dashboard", "user", users, "ann", "--password", "long enough")
    for words in (("certs", "make", str(tmp_path)), ("secrets", "make", str(tmp_path)), add_user):
        assert run(capsys, *words)[0] == exits.OK
    files = [file for file in tmp_path.iterdir() if file.stem != "ca"]
    assert len(files) == 6
    before = {file: file.read_bytes() for file in files}
    for file in files:
        os.chown(file, 1234, 1235)
    (tmp_path / "admin").unlink()
    secrets = [("secrets", word, str(tmp_path / "node")) for word in ("add", "use-newest", "drop-others")]
    for words in (("certs", "make", str(tmp_path)), ("secrets", "make", str(tmp_path)), *secrets, add_user):
        assert run(capsys, *words)[0] == exits.OK
    for file in files:
        assert file.read_bytes() != before[file]
        state = file.stat()
        assert (state.st_uid, state.st_gid) == ((0, 0) if file.name == "admin" else (1234, 1235))
        assert state.st_mode & 0o177 == (0o44 if file.suffix == ".pem" else 0)


@pytest.mark.parametrize(("old_days", "about"), [(3400, "has 250 days left"), (3700, "has ended")])
def test_no_certificate_outlives_its_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old_days: int, about: str
) -> None:
    """Nodes tell how long their own certificate is valid; nobody would hear of the day on which all are refused."""
    Authority.make(tmp_path, TestClock(wall_ms=SystemClock().wall_ms() - old_days * 86_400_000))
    code, text = run(capsys, "certs", "make", str(tmp_path))
    assert (code, about in text) == (exits.USAGE, True), text
    assert not (tmp_path / "node.pem").exists()
    if old_days < 3650:
        assert run(capsys, "certs", "make", str(tmp_path), "--days", "200")[0] == exits.OK
    assert run(capsys, "certs", "make", str(tmp_path / "new"), "--days", "3650")[0] == exits.OK
