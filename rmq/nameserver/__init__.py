"""The nameserver: a route table behind a listener. It keeps nothing on disk (N3)."""
