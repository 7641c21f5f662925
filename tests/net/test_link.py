"""What the system does not take at once is written later, from the byte on where it stopped."""

import socket

import pytest

from rmq.net.transport.link import write_now


@pytest.mark.parametrize("size", [1, 1000, 300_000, 3_000_000])
def test_nothing_is_lost_or_written_twice(size: int) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    pieces = [bytes([number]) * (size + number) for number in range(12)]
    whole, got, left = b"".join(pieces), b"", list(pieces)
    while left:
        rest = [bytes(piece) for piece in write_now(ours.fileno(), left, sum(map(len, left)))]
        while len(got) < len(whole) - sum(map(len, rest)):
            got += theirs.recv(1 << 20)
        left = rest
    ours.close()
    theirs.close()
    assert got == whole
