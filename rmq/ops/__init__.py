"""For operators: metrics and health checks, and archives of the log."""
