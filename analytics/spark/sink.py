"""`df.write.format("rmq")` and `writeStream`: each row becomes a message.

At least once: if a task fails, what it has sent stays sent, and Spark runs the task again.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from analytics.spark.sending import send


class Stored(WriterCommitMessage):
    """All rows of a partition are stored."""

    def __init__(self, count: int) -> None:
        self.count = count


class RowSender(DataSourceArrowWriter):
    """Sends the rows of a batch job. `topic`: for all rows, "" if each names its own."""

    def __init__(self, nameservers: str, topic: str) -> None:
        self._nameservers = nameservers
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Stored(send(self._nameservers, iterator, self._topic))


class StreamRowSender(DataSourceStreamArrowWriter):
    """Sends the rows of a stream."""

    def __init__(self, nameservers: str, topic: str) -> None:
        self._nameservers = nameservers
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Stored(send(self._nameservers, iterator, self._topic))


def columns_of(schema: StructType) -> dict[str, str]:
    """The columns: name -> type."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}
