"""The index of keys and unique ids, and questions to it."""
