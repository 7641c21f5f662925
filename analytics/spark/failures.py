"""What a job of Spark failed of, in one line: the reader's own error, or what Java gives as the cause."""

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rmq.errors import BadBytes, InvalidArgument, RmqError, StoreError

FAILURES = (PySparkException, Py4JError)  # Spark turns only some of Java's errors into its own
_KINDS = {kind.__name__: kind for kind in (BadBytes, StoreError, InvalidArgument)}
_TOLD, _CAUSE = ": ", "Caused by: "  # how lines of Java begin


def plain_error(error: Exception) -> RmqError:
    """The error, taken out of Spark's pages of traceback."""
    text = str(error)
    lines = text.splitlines()
    for line in lines:
        name, _, words = line.strip().partition(": ")
        if name.startswith(("rmq.errors.", "analytics.")) and words:
            return _KINDS.get(name.rpartition(".")[2], StoreError)(words)
    told = next((line.removeprefix(_TOLD) for line in lines if line.startswith(_TOLD)), "")
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return StoreError(f"Spark failed: {': '.join([told, *causes[-1:]]) if told else text}")
