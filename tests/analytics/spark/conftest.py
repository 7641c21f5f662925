"""One Spark session for all tests of this folder, which one process runs (`pytest_xdist_make_scheduler`)."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analytics
from analytics.spark.java import prepare_environment

# For a handful of rows: no code is made for a query, Java compiles what it has to in a hurry and believes Spark's classes.
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:-UsePerfData "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
QUICK = {
    "spark.master": "local[1]",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; skips where Spark is not installed. Drivers that tests start hurry, too."""
    pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")
    from analytics.spark.session import spark_session

    with pytest.MonkeyPatch.context() as environment:
        prepare_environment()
        logging = Path(analytics.__file__).with_name("log4j2.properties").as_uri()
        environment.setenv("SPARK_HOME", str(compiled(tmp_path_factory.mktemp("spark"))))
        environment.setenv("SPARK_SUBMIT_OPTS", f"{JAVA} -Dlog4j2.configurationFile={logging}")
        quick = QUICK | {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}  # else where the tests are started
        said = " ".join(f"--conf {name}={value}" for name, value in quick.items())
        environment.setenv("PYSPARK_SUBMIT_ARGS", f"{said} pyspark-shell")
        with spark_session("rmq tests") as session:
            yield session


def compiled(home: Path) -> Path:
    """Spark's folder by links, with the installed pyspark in place of the zip with its source.

    Each Python that Spark starts would compile what it imports from there, for 0.4 s. There are ten of them and more.
    """
    (installed,) = importlib.util.find_spec("pyspark").submodule_search_locations
    zipped = Path("python", "lib", "pyspark.zip")
    (home / zipped).parent.mkdir(parents=True)
    (home / zipped).symlink_to(Path(installed).parent)
    for each in Path(installed).iterdir():
        if each.name != zipped.parts[0]:
            (home / each.name).symlink_to(each)
    for each in Path(installed, zipped).parent.iterdir():
        if each.name != zipped.name:
            (home / zipped).with_name(each.name).symlink_to(each)
    return home
