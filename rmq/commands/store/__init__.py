"""`rmq store`: works on a store directory, without a node."""
