"""Stores to read: some that RocketMQ wrote, some made here record by record; and one Spark session for all tests."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analytics.java import find_java
from tests import archives

DATA = Path(__file__).parent.parent / "data" / "analytics"


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, list[dict[str, Any]]]]:
    """name -> the unpacked store, and its messages as RocketMQ's client reported them."""
    root = tmp_path_factory.mktemp("golden")

    def unpack(name: str) -> tuple[Path, list[dict[str, Any]]]:
        if not (root / name).exists():
            archives.unpack(DATA / f"{name}.tar.xz", root)
        return root / name, json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))

    return unpack


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session; skips where Spark or Java are not installed."""
    pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")
    from analytics.session import spark_session

    find_java()
    with spark_session("rmq tests") as session:
        yield session
