"""Shared by producers and consumers: connections, routes, heartbeats, the message."""
