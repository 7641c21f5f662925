"""The ports of a node: who listens, from before the store is open, and what is forwarded to the leader."""
