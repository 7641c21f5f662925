"""Room that a store holds back for the moment in which its disk is full: saving how far it is takes a few hundred bytes, without
which retention could delete nothing, a vote could not be saved, and no new start would succeed."""

import errno
from typing import Final

from rmq.log.files.disk import Disk, allocated

BYTES: Final = 4 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_kept(disk: Disk, own: str) -> bool:
    return disk.exists(_path(own))


def keep(disk: Disk, own: str, size: int) -> None:
    """Holds so many bytes back, if they are not already and the disk has them. Raises OSError."""
    path = _path(own)
    if not size or (disk.exists(path) and disk.size(path) >= size):  # whoever was killed at this left less
        return
    try:
        disk.close(allocated(disk, path, size))
    except OSError as error:
        if error.errno not in _FULL:
            raise


def give_back(disk: Disk, own: str, error: BaseException) -> bool:
    """For something that failed with that error: whether there is room now, so that it is worth another try."""
    cause = error if isinstance(error, OSError) else error.__cause__
    path = _path(own)
    if not (isinstance(cause, OSError) and cause.errno in _FULL and disk.exists(path)):
        return False
    try:
        disk.unlink(path)
    except OSError:  # a full disk may not even take that (copy on write): the first error says what is wrong
        return False
    return True


def _path(own: str) -> str:
    return f"{own}/reserve"
