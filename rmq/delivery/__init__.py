"""When a message is delivered, and to which consumer: one small table for each question. Pure."""
