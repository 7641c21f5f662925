"""RocketMQ 5's gRPC door to a cluster."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its library writes to stderr by itself, also what we say better
