"""Consume queues: for each message of a queue, where it is in the log."""
