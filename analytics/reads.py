"""Teaches a session to plan reads of the format "rmq" by the columns and filters of each query.

The planner's part is `Reads.java`: Spark's planner takes classes of Java only. The compiler that Spark itself has (Janino)
compiles it in the driver. Without it, as in a session in which nobody registered the format, reads give the same rows, and
Spark asks for all columns and filters alone.
"""

from pathlib import Path

from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("Reads.java")
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
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE.read_text())
    strategies.append(compiler.getClassLoader().loadClass(_SOURCE.stem).newInstance())
    getattr(experimental, "extraStrategies_$eq")(jvm.PythonUtils.toSeq(strategies))
