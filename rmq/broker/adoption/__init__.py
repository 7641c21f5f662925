"""A directory of Apache RocketMQ becomes ours: what its tables and files say is written into the log as state records."""
