"""Frames and the native (msgpack) codec: pure."""
