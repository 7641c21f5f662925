"""Memory that a node frees and wants again at once: of answers of some hundred KiB, several in each turn of its loop.

glibc gives freed memory at the end of its heap back to the system as soon as it is twice as much as the largest piece so far, and
takes it anew for the next answer. The kernel makes each page zero first, which took half of a pull of 500 messages [mallopt(3)].
"""

import ctypes
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_... of malloc.h
KEPT_BYTES: Final = 16 << 20  # so much that is free may stay
LARGE_BYTES: Final = 8 << 20  # larger pieces come from the system each time, and go back


def keep_freed() -> None:
    """For the begin of a node. Does nothing where the C library is another."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
