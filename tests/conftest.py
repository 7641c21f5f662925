"""Of all tests: whatever a run leaves behind is cleared up, however it ends. (How long one may take: pyproject.toml.)"""

import pytest

from tests import janitor


def pytest_configure(config: pytest.Config) -> None:
    janitor.begin()
