"""From a directory to a store that can be served: what is rebuilt or repaired before, and what is said meanwhile."""
