"""The load generator and its frames against a real node: every case runs, and what it claims was stored is stored."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import brokers, frames, group, kinds, measured, peers, pyclient, rows, run, targets
from benchmarks.options import Options
from benchmarks.rows import Goal, Row

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc (Linux)"),
    pytest.mark.skipif(not shutil.which("cc"), reason="benchmarks/load.c needs a C compiler (cc)"),
]
_FEW = {"single": 1024, "batch": 8, "pull": 64}


def few(case: brokers.Case) -> measured.Load:
    return case.load._replace(requests=_FEW[case.load.kind])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[targets.Target]:
    found = targets.start_rmq(tmp_path_factory.mktemp("bench"))
    yield found
    found.stop()
    assert found.processes[-1].returncode == 0


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured.compile_load(tmp_path_factory.mktemp("load"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frames.Prepared]:
    return frames.prepare(tmp_path_factory.mktemp("frames"), "broker-a")


def test_every_case_runs_and_is_checked(target: targets.Target, load: Path, made: dict[str, frames.Prepared]) -> None:
    frames.make_topic(target.port, "broker-a")
    assert frames.stored(target.port) == frames.QUEUES
    for case in brokers.cases_of(target):
        figure = measured.measure(load, target, few(case), made[case.load.key])
        assert figure.per_second > 0
        assert 0 < figure.p50_us <= figure.p99_us


@pytest.mark.parametrize("name", peers.NAMES)
def test_a_peer_is_measured(name: str, load: Path, tmp_path: Path) -> None:
    """`measure` fails unless the peer says that it holds as many messages as were sent."""
    if missing := peers.missing(name, sync=False):
        pytest.skip(missing)
    made, peer = peers.prepare(tmp_path / "frames"), peers.start(name, tmp_path / "peer", sync=False)
    try:
        for case in brokers.cases_of(peer):
            assert measured.measure(load, peer, case.load._replace(requests=512), made[case.load.key]).per_second > 0
    finally:
        peer.stop()


def test_messages_of_other_kinds_arrive(target: targets.Target, tmp_path: Path) -> None:
    frames.make_topic(target.port, target.broker_name)
    of_kind = kinds.figures(Options(tmp_path, 1, 1.0, False, "", False, tmp_path, 1.0))
    assert [figure(target, 4000) > 0 for figure in of_kind.values()] == [True] * 4


@pytest.mark.parametrize("kind", list(pyclient.WORK))
def test_the_python_client_measures_itself(target: targets.Target, kind: str) -> None:
    frames.make_topic(target.port, target.broker_name)
    if kind == "consume":
        pyclient.run(target, "batch", 1000)
    assert pyclient.run(target, kind, 400)["cpu_us"] >= 0


def test_the_table_has_a_line_for_every_case() -> None:
    figures = {case.title: [measured.Figure(2.0, 10.0, 1.0, 2.0), measured.Figure(4.0, 30.0, 1.0, 2.0)] for case in brokers.CASES}
    found = brokers.rows({"rmq": figures})
    assert [row.work for row in found] == [case.title for case in brokers.CASES]
    assert (found[0].ratio, found[0].reached) == (None, None)
    assert (found[0].as_json()["median"], found[0].as_json()["lowest"], found[0].as_json()["highest"]) == (3.0, 2.0, 4.0)


def test_what_the_index_costs_is_told_beside() -> None:
    """Round by round, where it was measured without, too."""
    case = next(case for case in brokers.CASES if brokers.measures_without(case))
    own, without = ([measured.Figure(us, 10.0, 1.0, 2.0) for us in each] for each in ([8.0, 9.0], [7.5, 7.0]))
    found = brokers.rows({"rmq": {case.title: own}, brokers.NO_INDEX: {case.title: without}})
    assert [row.who for row in found] == ["rmq", brokers.NO_INDEX, "rmq"]
    assert (list(found[2].figures), found[2].reached) == ([0.5, 2.0], False)


def test_a_row_says_whether_its_goal_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    two = rows.beside(
        "n", "work", "us", {"rmq": [2.0, 3.0, 4.0], targets.APACHE: [8.0]}, targets.APACHE, Goal(0.5, of_apache=True)
    )
    assert [(row.ratio, row.reached) for row in two] == [(0.38, True), (None, None)]
    slow = Row("n", "rate", "rmq", "/s", [70_000.0], Goal(80_000, at_most=False))
    assert slow.reached is False
    rows.show([*two, slow])
    assert "| at least 80000 | no |" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["127.0.0.1", "1", "0", "1", "1", __file__, "9", "be32"]])
def test_load_tells_what_is_wrong(load: Path, arguments: list[str]) -> None:
    done = subprocess.run([str(load), *arguments], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("load: ")


def test_run_has_help() -> None:
    script = Path(run.__file__)
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "--no-apache" in done.stdout


def test_a_group_of_three_is_measured(load: Path, made: dict[str, frames.Prepared], tmp_path: Path) -> None:
    """Leader and followers, and a rate that is kept; all three hold all messages, or `measure` fails."""
    three = group.start_rmq(tmp_path)
    try:
        for case in group.CASES:
            figure = group.tried(load, three, made[f"native-{case.kind}"], case._replace(requests=500), peak=2000.0)
            assert 0 < figure.p50_us <= figure.p99_us
            assert not case.share or 0 < figure.per_second < 1200  # half the peak, or less on a busy machine
    finally:
        three.stop()
