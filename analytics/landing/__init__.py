"""`rmq export` and `rmq changes`: messages and change events as tables that go from one version to the next."""
