"""The tables that state records fill: the list, their snapshots, and what a committed record does to them."""
