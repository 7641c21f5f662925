"""Of all tests: whatever a run leaves behind is cleared up, however it ends. (How long one may take: pyproject.toml.)
Hypothesis judges nothing by how fast this machine is just now. A file's tests stay together, and all of Spark.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests import janitor

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    janitor.begin()


class _Files(LoadFileScheduling):
    """What `--dist loadfile` does, with one folder as if it were one file: its tests share a session of Spark."""

    FOLDER = "tests/analytics/spark/"

    def _split_scope(self, nodeid: str) -> str:
        return self.FOLDER if nodeid.startswith(self.FOLDER) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return _Files(config, log) if config.getvalue("dist") == "loadfile" else None
