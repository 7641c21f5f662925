"""When a message is delivered, and to whom: one small table each. Pure."""
