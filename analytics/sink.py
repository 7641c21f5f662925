"""`df.write.format("rmq")` and `writeStream`: each row becomes a message.

At least once: what a task has sent stays sent when it fails, and Spark tries it again.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from analytics.sending import send


class Stored(WriterCommitMessage):
    """All rows of a partition are stored."""

    def __init__(self, count: int) -> None:
        self.count = count


class RowSender(DataSourceArrowWriter):
    """Of a batch job. `topic`: of all rows, "" when they name their own."""

    def __init__(self, nameservers: str, topic: str) -> None:
        self._nameservers = nameservers
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Stored(send(self._nameservers, iterator, self._topic))


class StreamRowSender(DataSourceStreamArrowWriter):
    """The same of a stream."""

    def __init__(self, nameservers: str, topic: str) -> None:
        self._nameservers = nameservers
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Stored(send(self._nameservers, iterator, self._topic))


def columns_of(schema: StructType) -> dict[str, str]:
    """Name -> type."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}
