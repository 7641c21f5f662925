"""The load generator and its frames against a real node: every case runs, and what it claims was stored is stored."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import frames, group, peers, run, targets

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc (Linux)"),
    pytest.mark.skipif(not shutil.which("cc"), reason="benchmarks/load.c needs a C compiler (cc)"),
]
_FEW = {"single": 1024, "batch": 8, "pull": 64}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[targets.Target]:
    found = targets.start_rmq(tmp_path_factory.mktemp("bench"))
    yield found
    found.stop()
    assert found.processes[-1].returncode == 0


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.compile_load(tmp_path_factory.mktemp("load"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frames.Prepared]:
    return frames.prepare(tmp_path_factory.mktemp("frames"), "broker-a")


def test_every_case_runs_and_is_checked(target: targets.Target, load: Path, made: dict[str, frames.Prepared]) -> None:
    frames.make_topic(target.port, "broker-a")
    assert frames.stored(target.port) == frames.QUEUES
    for case in run.cases_of(target):
        figure = run.measure(load, target, case, made[case.key], _FEW[case.kind])
        assert figure.per_second > 0
        assert 0 < figure.p50_us <= figure.p99_us


@pytest.mark.parametrize("name", peers.NAMES)
def test_a_peer_is_measured(name: str, load: Path, tmp_path: Path) -> None:
    """`measure` fails unless the peer says that it holds as many messages as were sent."""
    if missing := peers.missing(name, sync=False):
        pytest.skip(missing)
    made, peer = peers.prepare(tmp_path / "frames"), peers.start(name, tmp_path / "peer", sync=False)
    try:
        for case in run.cases_of(peer):
            assert run.measure(load, peer, case, made[case.key], 512).per_second > 0
    finally:
        peer.stop()


def test_the_table_has_a_line_for_every_case() -> None:
    figures = {case.title: [run.Figure(2.0, 10.0, 1.0, 2.0), run.Figure(4.0, 30.0, 1.0, 2.0)] for case in run.CASES}
    rows = run.summary({"rmq": figures})
    assert [row["case"] for row in rows] == [case.title for case in run.CASES]
    assert rows[0]["of_apache"] is None
    assert (rows[0]["cpu_us_per_message"], rows[0]["cpu_us_lowest"], rows[0]["cpu_us_highest"]) == (3.0, 2.0, 4.0)


@pytest.mark.parametrize("arguments", [[], ["127.0.0.1", "1", "0", "1", "1", __file__, "9", "be32"]])
def test_load_tells_what_is_wrong(load: Path, arguments: list[str]) -> None:
    done = subprocess.run([str(load), *arguments], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("load: ")


def test_run_has_help() -> None:
    script = Path(run.__file__)
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "--no-apache" in done.stdout


def measured(load: Path, nodes: list[targets.Target], made: dict[str, frames.Prepared], case: group.Case) -> group.Figure:
    for _ in range(4):
        try:
            return group.measure(load, group.find_leader(nodes), nodes, made[case.key], case, peak=2000.0)
        except group.LeaderMoved:
            continue  # the other tests keep the machine busy
    raise AssertionError("leadership moved each time")


def test_a_group_of_three_is_measured(load: Path, made: dict[str, frames.Prepared], tmp_path: Path) -> None:
    """Leader and followers, and a rate that is kept; all three hold all messages, or `measure` fails."""
    names = targets.start_nameserver(tmp_path)
    nodes = targets.start_group(tmp_path, [names])
    try:
        for case in group.CASES:
            figure = measured(load, nodes, made, case._replace(requests=500))
            assert 0 < figure.p50_us <= figure.p99_us
            assert not case.share or figure.per_second == pytest.approx(1000.0, rel=0.2)
    finally:
        for node in reversed([names, *nodes]):
            node.stop()
