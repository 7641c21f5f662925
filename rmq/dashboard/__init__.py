"""A web page that shows a cluster and changes it: a guest of the client's administration, in a process of its own."""
