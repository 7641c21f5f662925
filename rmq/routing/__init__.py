"""Topics, routes, the producer's choice of a queue, and the split of queues among the members of a group. Pure."""
