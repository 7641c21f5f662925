"""The documents say what is there: links lead somewhere, commands exist, containers files are well formed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import run
from rmq.cli import cli
from rmq.config.loading import Entry, load
from rmq.ops import secretmaking

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def headings(page: Path) -> set[str]:
    """The names by which a page's headings are linked, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_headings(page: Path) -> None:
    for target, heading in re.findall(r"\]\((?!http)([^)#]*)#([^)]*)\)", page.read_text()):
        assert heading in headings(page.parent / target if target else page), (target, heading)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    for path in re.findall(r"`((?:rmq|analytics|tests|examples|benchmarks)/[\w/]+\.py)`", page.read_text()):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").iterdir()), ids=name)
def test_modules_that_decisions_name_exist(page: Path) -> None:
    rooms = {room.name for room in (ROOT / "rmq").iterdir()}
    for path in re.findall(r"`([a-z]+(?:/[a-z]+)+)`", page.read_text()):
        if path.partition("/")[0] in rooms:
            assert (ROOT / "rmq" / path).exists() or (ROOT / "rmq" / f"{path}.py").exists(), path


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_shows_two_versions(page: Path) -> None:
    """Of a merge that somebody left in the middle; Python's own files would not even be parsed."""
    assert not re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tables_are_shown_as_tables(page: Path) -> None:
    """Each begins with a line of names and one of dashes, and its rows have as many cells: else readers see the bars."""
    for rows in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        names, dashes, *others = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows.splitlines()]
        assert all(re.fullmatch(r" *:?-+:? *", cell) for cell in dashes), names
        assert [row for row in (dashes, *others) if len(row) != len(names)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_are_python(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        compile(block, name(page), "exec", flags=0x2000)  # PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    """Every `rmq …` line that a page shows names a command with the options it has."""
    for line in re.findall(r"^ {4}(?:\$ )?(?:\.venv/bin/)?rmq ([a-z].*)$", page.read_text(), re.MULTILINE):
        words = line.partition("   ")[0].split()  # three spaces: an explanation follows
        shown = CliRunner().invoke(cli, [words[0], "--help"])
        if "install it: pip install 'rmq[" in shown.output:
            continue  # it needs an extra that is not there
        assert shown.exit_code == 0, line
        if "COMMAND" not in shown.output:
            used = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert used <= set(re.findall(r"--[\w-]+", shown.output)), line


def test_the_map_has_every_room() -> None:
    """Every folder of the code, and every file beside them, stands in the contributors' map."""
    page = (ROOT / "docs" / "contributing.md").read_text().partition("## Three journeys")[0]
    shown = set(re.findall(r"`(?:[\w/]*/)?(\w+)(?:\.py|/)?`", page))
    rooms = {each.parent.name for each in (ROOT / "rmq").glob("*/**/*.py")}
    files = {each.stem for each in (ROOT / "rmq").glob("*.py")} - {"__init__"}
    assert sorted((rooms | files) - shown) == []


def test_readme_has_exactly_two_commands_on_top() -> None:
    top = (ROOT / "README.md").read_text().partition("\n## ")[0]
    assert re.findall(r"^ {4}(.+)$", top, re.MULTILINE) == ["python3 run.py", "python3 run.py test"]
    assert "python3 run.py test" in (ROOT / ".ci" / "run").read_text()


def test_the_quick_tests_are_there() -> None:
    assert [path for path in run.QUICK if not (ROOT / path).exists()] == []


def test_container_files() -> None:
    """No engine runs here, so only their form is checked: no root, a health check, every copied path exists."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    users = re.findall(r"^USER (\w+)$", dockerfile, re.MULTILINE)
    assert users[-1] == users[0] == "rmq"
    assert "CMD rmq health" in dockerfile
    for copied in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE):
        for path in copied.split():
            assert (ROOT / path).exists(), path
            assert f"!{path}" in (ROOT / ".dockerignore").read_text().splitlines(), path


def test_compose_file(tmp_path: Path) -> None:
    """What it does is in tests/e2e/test_compose.py."""
    secretmaking.make(tmp_path)
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    brokers = {f"broker-{group}-{number}" for group in "ab" for number in range(3)}
    reports = {"report", "report-nightly"}
    assert set(services) == {"nameserver-a", "nameserver-b", "dashboard", "proxy", "secrets"} | reports | brokers
    stages = re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {service["build"]["target"] for service in services.values()} == set(stages)
    for service in (service for name, service in services.items() if name not in reports | {"secrets"}):
        name, *words = service["command"]
        known = set(re.findall(r"--[\w-]+", CliRunner().invoke(cli, [name, "--help"]).output))
        assert {word for word in words if word.startswith("--")} <= known
    for name in reports:
        assert "/stores/*" in " ".join([*services[name]["entrypoint"], *services[name].get("command", [])])
        volumes = dict(volume.split(":")[:2] for volume in services[name]["volumes"])
        assert volumes == {"./reports": "/reports"} | {f"store-{broker[7:]}": f"/stores/{broker}" for broker in brokers}
    loaded = {}
    for broker in sorted(brokers):
        variables = {key: re.sub(r"\$\{\w+:-(.+)\}", r"\1", value) for key, value in services[broker]["environment"].items()}
        health = variables.pop("HEALTH_ADDRESS")
        flags = [Entry("role", "broker", "--role"), Entry("listen_host", "0.0.0.0", "--listen")]
        assert "--insecure" not in services[broker]["command"]
        for name in ("RMQ_NODE_CREDENTIALS", "RMQ_INIT_USER"):
            assert variables[name].startswith("file:/secrets/")
            variables[name] = f"file:{tmp_path}/{variables[name].rpartition('/')[2]}"
        found = load(env=variables, flags=flags)
        assert not found.warnings
        settings = loaded[broker] = found.settings
        assert (f"{settings.node_id}-{broker}:40911" in settings.peers, settings.store_host) == (True, broker)
        assert health == f"127.0.0.1:{settings.listen_port}"
        assert services[broker]["ports"] == [f"127.0.0.1:{settings.listen_port}:{settings.listen_port}"]
    assert len({settings.listen_port for settings in loaded.values()}) == 6
    assert {settings.broker_name for settings in loaded.values()} == {"broker-a", "broker-b"}


def test_options_of_every_nightly_report() -> None:
    """The unit of systemd, the line for cron and the compose file give options that the command knows."""
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    known = set(re.findall(r"--[\w-]+", CliRunner().invoke(cli, ["report", "--help"]).output))
    for file in ("conf/systemd/rmq-report.service", "docs/data-engineers.md", "docker-compose.yml"):
        lines = [line for line in (ROOT / file).read_text().splitlines() if re.search(r"rmq report .*--day yesterday", line)]
        assert lines, file
        for line in lines:
            assert set(re.findall(r"--[\w-]+", line.partition("rmq report")[2])) <= known, line


def test_systemd_starts_what_a_file_says(tmp_path: Path) -> None:
    """The command of the unit, as systemd runs it for one file in /etc/rmq; with a wrong file it is not run again."""
    unit = (ROOT / "conf" / "systemd" / "rmq@.service").read_text()
    words = re.findall(r"^ExecStart=/opt/rmq/bin/rmq (.*)$", unit, re.MULTILINE)[0].replace("/etc/rmq/%i", f"{tmp_path}/a")
    command, config = [sys.executable, "-m", "rmq.cli", *words.split()], tmp_path / "a.toml"
    config.write_text(f'role = "broker"\nlisten_port = 0\nstore_dir = "{tmp_path}/store"\n')
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
        assert node.stderr is not None
        assert any('"message":"ready' in line for line in node.stderr), "it ended"
        node.terminate()
    assert node.returncode == 0
    config.write_text('role = "no such role"\n')
    code = subprocess.run(command, capture_output=True, timeout=60, check=False).returncode
    assert str(code) in re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)[0].split()


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    for unit in (ROOT / "conf" / "systemd").iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/rmq/bin/rmq", "/bin/true"))  # it must be there
    units = sorted(map(str, tmp_path.iterdir()))
    ran = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
