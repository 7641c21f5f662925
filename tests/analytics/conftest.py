"""Stores to read: some that RocketMQ wrote, some made here record by record; and one Spark session for all tests."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import analytics
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
def s3() -> Iterator[str]:
    """The address of a bucket; "" if no S3 server is installed."""
    pytest.importorskip("pyarrow", reason="needs the extra spark: pip install 'rmq[spark]'")
    from tests.analytics.remote import s3_bucket

    with s3_bucket() as address:
        yield address


# For a handful of rows: no code is made for a query, Java compiles what it has to in a hurry and believes Spark's classes.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
QUICK = {
    "spark.master": "local[1]",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session; skips where Spark or Java are not installed. Drivers that tests start hurry, too."""
    pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")
    from analytics.session import spark_session

    find_java()
    with pytest.MonkeyPatch.context() as environment:
        logging = Path(analytics.__file__).with_name("log4j2.properties").as_uri()
        environment.setenv("SPARK_SUBMIT_OPTS", f"{JAVA} -Dlog4j2.configurationFile={logging}")
        said = " ".join(f"--conf {name}={value}" for name, value in QUICK.items())
        environment.setenv("PYSPARK_SUBMIT_ARGS", f"{said} pyspark-shell")
        with spark_session("rmq tests") as session:
            yield session
