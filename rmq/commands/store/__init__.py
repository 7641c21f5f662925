"""`rmq store`: what can be done with a store directory, without a node."""
