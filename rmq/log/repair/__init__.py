"""Looking a store over, and putting it right: verify, repair, mending from another node, lowering of epochs."""
