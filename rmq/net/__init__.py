"""Bytes and commands: frames, connections in both directions, and nothing that knows what a command means."""
