"""Settings of a node: where they come from, which of RocketMQ's keys mean what."""
