"""One log at several nodes: the members of a group, the messages between them, and how the leader appends and commits."""
