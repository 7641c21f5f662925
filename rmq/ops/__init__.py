"""For operators: what tells machines how a node is, and archives of its log."""
