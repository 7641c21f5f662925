"""Looking a store over, and putting it right: verify, repair by one node alone and from its peers, lowering of epochs."""
