"""Of all tests: whatever a run leaves behind is cleared up, however it ends. (How long one may take: pyproject.toml.)
Hypothesis judges nothing by how fast this machine is just now. A file's tests stay together, and all of Spark.
"""

import contextlib
import gc
import importlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests import janitor

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    janitor.begin()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each of several workers imports a share of the files first. All of them import all files, so in a fresh clone each would
    compile all of them, 12 s of CPU."""
    share = getattr(session.config, "workerinput", None)
    if share is None:
        return
    paths = [path for name in session.config.args if (path := Path(name.partition("::")[0])).is_dir()]
    files = sorted(file for path in paths for file in path.rglob("test_*.py"))
    for file in files[int(share["workerid"].removeprefix("gw")) :: share["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # who collects the file will hear of it
            name = file.absolute().relative_to(session.config.rootpath)  # both by a symbolic link, or neither
            importlib.import_module(".".join(name.with_suffix("").parts))


def pytest_collection_finish(session: pytest.Session) -> None:
    """The half a million objects of the tests themselves are looked through no more, and new ones less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


SPARK = "tests/analytics/spark/"  # as if it were one file: its tests share a session
WAITING = (SPARK, "tests/e2e/", "tests/faults/", "tests/interop/")


def file_of(nodeid: str) -> str:
    return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Beside each other, files that wait for programs of their own are spread among those that keep a core busy."""
    if not hasattr(config, "workerinput"):
        return
    places: dict[str, float] = {}
    for waits in (True, False):
        files = [*dict.fromkeys(file for each in items if (file := file_of(each.nodeid)).startswith(WAITING) is waits)]
        places.update({file: place / len(files) for place, file in enumerate(files)})
    items.sort(key=lambda each: places[file_of(each.nodeid)])


class _Files(LoadFileScheduling):
    """What `--dist loadfile` does."""

    def _split_scope(self, nodeid: str) -> str:
        return file_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return _Files(config, log) if config.getvalue("dist") == "loadfile" else None
