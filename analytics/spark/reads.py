"""Teaches a session to plan reads of the format "rmq" by the columns and filters of each query.

The planner's part is `Reads.java`: Spark's planner takes classes of Java only. `ArrowRows.java` reads the columns that a task's
Python gives. The compiler that Spark itself has (Janino) compiles both in the driver; `ArrowBatches.java` goes to the tasks as
text. Without them, as in a session in which nobody registered the format, reads give the same rows, and Spark asks for all
columns and filters alone.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("Reads.java")
_ROWS, _BATCHES = _SOURCE.with_name("ArrowRows.java"), _SOURCE.with_name("ArrowBatches.java")
PLANNED = "rmq.planned"  # in the metadata of a schema: Reads.java has planned this read
COUNTED = "rmq.counted"  # the schema of a read of which it wants to know only how many rows there are


def plan_reads(session: SparkSession) -> None:
    """Once in each session; without a driver's Java at hand (Spark Connect) it does nothing."""
    java, jvm = getattr(session, "_jsparkSession", None), getattr(session, "_jvm", None)
    if java is None or jvm is None:
        return
    experimental = java.experimental()
    there = experimental.extraStrategies()
    strategies = [there.apply(index) for index in range(there.size())]
    if any(each.getClass().getSimpleName() == _SOURCE.stem for each in strategies):
        return
    planner = _compiled(jvm).newInstance()
    planner.setBatches(_BATCHES.read_text())
    strategies.append(planner)
    getattr(experimental, "extraStrategies_$eq")(jvm.PythonUtils.toSeq(strategies))


@lru_cache(maxsize=1)
def _compiled(jvm: Any) -> Any:
    """The planner's class. One for all sessions of a Java: py4j remembers methods by the name of their class."""
    rows = jvm.org.codehaus.janino.SimpleCompiler()
    rows.cook(_ROWS.read_text())
    reads = jvm.org.codehaus.janino.SimpleCompiler()
    reads.setParentClassLoader(rows.getClassLoader())
    reads.cook(_SOURCE.read_text())
    return reads.getClassLoader().loadClass(_SOURCE.stem)
