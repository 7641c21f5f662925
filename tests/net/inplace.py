"""Frames as they lie in what a read brought."""

from rmq.net.codec.frames import Codec, Received

_BEFORE = b"\0\0\0\5"


def decode_amid(codec: Codec, frame: bytes, behind: bytes) -> Received:
    """The frame with others around it, of which nothing may be taken for its own. Raises BadBytes."""
    return codec.decode(_BEFORE + frame + behind, len(_BEFORE), len(_BEFORE) + len(frame))
