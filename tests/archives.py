"""Archives of stores among the tests' data."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Python 3.11.2, which Debian 12 has, does not know the word; from 3.12 on it warns without it.
_SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def unpack(archive: Path, folder: Path, wanted: Callable[[tarfile.TarInfo], bool] = lambda member: True) -> None:
    """The wanted members of the archive, below `folder`."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, [member for member in opened if wanted(member)], **_SAFE)
