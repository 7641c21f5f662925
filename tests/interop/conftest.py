"""No Java program outlives the test that started it, also when the test fails half-way."""

from collections.abc import AsyncIterator

import pytest

from tests.interop import java
from tests.interop.java import started


@pytest.fixture(scope="session")
def built() -> None:
    java.build()


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    yield
    while started:
        process = started.pop()
        if process.returncode is None:
            process.kill()
            await process.wait()
