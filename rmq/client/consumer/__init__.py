"""Consuming: assigned queues, pulls, offsets, locks, retries; and simple (POP) consumers."""
