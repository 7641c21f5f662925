"""rmq: a message broker cluster in pure Python, with RocketMQ's model, files and protocol. See README.md."""

__version__ = "0.1.0"
