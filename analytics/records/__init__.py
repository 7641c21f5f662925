"""Records as Arrow batches: columns, bodies, and the ends of logs that grow. No Spark."""
