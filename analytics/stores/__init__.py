"""Which bytes of which store directories a job reads: options, paths, file systems, copies, segments, tasks. No Spark."""
