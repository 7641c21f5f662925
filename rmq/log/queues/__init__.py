"""Consume queues: where in the log each message of a queue is."""
