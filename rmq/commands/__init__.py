"""The commands of the program `rmq`: each is a file or a folder, which rmq/cli.py finds by name. No other room imports them."""
