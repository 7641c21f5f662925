"""RocketMQ's remoting codec, JSON and binary headers: pure."""
