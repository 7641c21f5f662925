"""`rmq bench`: rates and latencies."""
