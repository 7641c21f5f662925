"""A web page that shows and changes a cluster. It runs in a process of its own and uses the client's administration."""
