"""Who leads, what is committed: Raft in pull form over one CommitLog. Pure: time, chance and all results come in."""
