"""How much of a table each peer has filled, so that no peer can take the room of all others. Pure.

With a total limit alone, one client could take everything. So each connection has a limit, and so have all connections of one
address together, since a client may open many.
"""

from typing import NamedTuple


class Owner(NamedTuple):
    """Who takes room: a connection, and the address (host) that it comes from."""

    connection: int
    address: str


class Share(NamedTuple):
    """Limits, in the unit that the table counts (rows or bytes)."""

    of_connection: int
    of_address: int
    in_all: int


class Shares:
    """What peers have taken of a `Share`. A table asks before it grows, and gives back when it shrinks."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._connections: dict[int, int] = {}
        self._addresses: dict[str, int] = {}
        self.taken = 0

    def refused(self, owner: Owner, amount: int) -> str:
        """The reason, for a refusal, why the owner may not take this amount; "" if it may."""
        share = self._share
        if self._connections.get(owner.connection, 0) + amount > share.of_connection:
            return f"one connection may have {share.of_connection}"
        if self._addresses.get(owner.address, 0) + amount > share.of_address:
            return f"all connections of {owner.address} together may have {share.of_address}"
        if self.taken + amount > share.in_all:
            return f"all clients together may have {share.in_all}"
        return ""

    def take(self, owner: Owner, amount: int) -> None:
        if not amount:
            return
        self._connections[owner.connection] = self._connections.get(owner.connection, 0) + amount
        self._addresses[owner.address] = self._addresses.get(owner.address, 0) + amount
        self.taken += amount

    def give(self, owner: Owner, amount: int) -> None:
        """Gives back what was taken."""
        if not amount:
            return
        self.taken -= amount
        self._connections[owner.connection] -= amount
        if not self._connections[owner.connection]:
            del self._connections[owner.connection]
        self._addresses[owner.address] -= amount
        if not self._addresses[owner.address]:
            del self._addresses[owner.address]
