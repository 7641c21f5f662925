"""Who asks, and whether they may: the same at the ports of brokers and of nameservers. Rules are rmq.access's."""
