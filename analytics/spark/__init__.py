"""The Spark data source "rmq": tables, streams and a sink, in a session that finds its Java."""
