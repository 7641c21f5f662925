"""The commands of the program `rmq`: a file or a folder each; rmq/cli.py finds them by name. Nobody below imports them."""
