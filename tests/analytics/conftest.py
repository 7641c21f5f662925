"""Stores to read that RocketMQ wrote, and an S3 server."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
def s3() -> Iterator[str]:
    """The address of a bucket; "" if no S3 server is installed."""
    pytest.importorskip("pyarrow", reason="needs the extra spark: pip install 'rmq[spark]'")
    from tests.analytics.remote import s3_bucket

    with s3_bucket() as address:
        yield address
