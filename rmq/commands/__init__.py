"""The commands of the program `rmq`, one file each; rmq/cli.py finds them by name. Nobody below imports them."""
