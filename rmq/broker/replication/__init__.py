"""One log at several nodes: what a member does, what it tells its peers, what the leader does with a burst."""
