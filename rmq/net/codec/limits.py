"""The bounds of a connection, in one place. Pure values: `wire` enforces them for bytes, `server` for time and memory."""

from typing import Final, NamedTuple

MIB = 1024 * 1024
BYTES_A_PART: Final = 16
"""Of structure, for each list and each map that may be in a large frame: no command has more of them, and each takes microseconds
to read."""


class Limits(NamedTuple):
    """Bounds on what a peer may cost us (S4, S6, S7, D18). Times in seconds on the monotonic clock.

    `max_frame_bytes` counts the 4-byte length too [NettyDecoder]. `max_structured_bytes` bounds everything in a frame
    that is not one of its byte strings (records), because only that grows when it is unpacked.
    """

    max_frame_bytes: int = 16 * MIB
    max_structured_bytes: int = 2 * MIB
    max_registration_bytes: int = 2 * MIB  # of the topics that a RocketMQ broker names in one request, inflated
    max_header_bytes: int = MIB // 2  # of a remoting frame: 32 767 bytes of properties, escaped, fit
    max_in_flight_bytes: int = 32 * MIB  # requests of one connection that have no answer yet
    max_in_flight_all: int = 1024 * MIB  # the same of all connections of a server; past it each may have the following only
    fair_in_flight_bytes: int = MIB // 4
    max_out_bytes: int = 64 * MIB  # answers of one connection that its peer has not read yet
    write_high_bytes: int = MIB  # from here on we stop reading from a peer that does not read
    max_half_frame_bytes: int = 256 * MIB  # begun frames of all connections of a server together
    max_unread_bytes: int = 1024 * MIB  # answers of all connections of a server that their peers have not read
    max_connections: int = 10_000
    max_connections_per_address: int = 2_000
    handshake_seconds: float = 10.0  # to the first whole request
    frame_seconds: float = 30.0  # from the first to the last byte of one frame
    stall_seconds: float = 30.0  # how long a peer may leave its answers unread
    idle_seconds: float = 120.0  # without a byte from the peer [NettyServerConfig.serverChannelMaxIdleTimeSeconds]
    slow_seconds: float = 0.0  # requests that take longer are counted and logged; 0: none


OF_CLIENTS = Limits(max_structured_bytes=16 * MIB)  # of who asks servers of their choice: for all topics of a cluster, perhaps
