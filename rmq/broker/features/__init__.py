"""What a broker does, one file for each feature; none knows another (`rmq.broker.feature`)."""
