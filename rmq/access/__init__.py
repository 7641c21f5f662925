"""Access control: users, policies, quotas, and what RocketMQ's signatures need. Pure."""
