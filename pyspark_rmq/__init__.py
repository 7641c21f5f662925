"""Makes Spark know the format "rmq" by itself: it looks into every installed package whose name begins like this one's."""

from analytics.spark.source import RmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
