"""Of all tests: whatever a run leaves behind is cleared up, however it ends. (How long one may take: pyproject.toml.)
Hypothesis judges nothing by how fast this machine is just now.
"""

import pytest
from hypothesis import HealthCheck, settings

from tests import janitor

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    janitor.begin()
