"""What tells machines how a node is: for monitoring, not for clients."""
