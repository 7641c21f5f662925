"""`rmq` on a machine that the test has booted: its boot id is what the environment's BOOT_ID says.

Run as a file, with the code to run first on PYTHONPATH, so that a copy of it can be tried.
"""

import os

from rmq.cli import main
from rmq.log.files import disk


class BootedDisk(disk.RealDisk):
    def boot_id(self) -> str:
        return os.environ["BOOT_ID"]


if __name__ == "__main__":
    from rmq.broker import node

    node.RealDisk = BootedDisk  # type: ignore[misc]
    main()
