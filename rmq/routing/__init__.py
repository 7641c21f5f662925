"""Where a message goes: topics, routes, the choice of a queue, who of a group reads which queue. Pure."""
