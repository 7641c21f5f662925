"""RocketMQ's own frame for the same commands (placeholder until written, in minutes)."""

from rmq.net.frames import Spelling
from rmq.net.network import Address


class Border:
    def spelling(self, peer: Address) -> Spelling:
        raise NotImplementedError
