"""Checks and repairs stores: verify, repair by one node alone and from its peers, lowering of epochs."""
