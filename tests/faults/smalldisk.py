"""A small ext4 (or btrfs), to be filled, starved of inodes, or broken: a file mounted by loop. Needs root and Linux."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import janitor


def why_not() -> str:
    """Why there can be none here; "" if there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root, to mount"
    if not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        return "needs mkfs.ext4 and loop devices"
    return ""


class SmallDisk:
    """`path` is where it is mounted."""

    def __init__(self, image: Path, path: Path, options: str = "loop,errors=remount-ro") -> None:
        self.path = path
        self._options = options
        self._image = image
        self._ballast = 0

    def mount(self) -> None:
        _run("mount", "-o", self._options, str(self._image), str(self.path))

    def unmount(self) -> None:
        if subprocess.run(["umount", str(self.path)], check=False, capture_output=True).returncode:
            _run("umount", "--lazy", str(self.path))

    def move(self) -> None:
        """As into another machine: what its image holds is mounted anew, read-write.

        A copy of it: whoever made a mount namespace meanwhile (another test's networks) holds the old image mounted,
        and what the kernel made read-only stays so for every later mount of the same image.
        """
        self.unmount()
        moved = self._image.with_name("moved")
        _run("cp", "--sparse=always", str(self._image), str(moved))
        self._image = moved
        self.mount()

    def fill(self, leave_bytes: int) -> None:
        """Somebody else's file takes all but so many bytes."""
        left = os.statvfs(self.path)
        size = left.f_bavail * left.f_frsize - leave_bytes
        with open(self.path / "ballast", "ab") as file:
            while size >= left.f_frsize:
                try:
                    os.posix_fallocate(file.fileno(), file.tell(), size)
                    file.seek(size, os.SEEK_CUR)
                except OSError:  # the file system itself needs some of it
                    size //= 2
                    continue
                size = 0 if leave_bytes else size // 2

    def take_inodes(self) -> None:
        """Somebody else's empty files take all that are left."""
        (self.path / "files").mkdir()
        try:
            while True:
                self._ballast += 1
                (self.path / "files" / str(self._ballast)).touch()
        except OSError:
            pass

    def free(self) -> None:
        """What somebody else took is given back."""
        (self.path / "ballast").unlink(missing_ok=True)
        shutil.rmtree(self.path / "files", ignore_errors=True)

    def make_sparse(self, folder: Path) -> None:
        """A copy takes the folder's place; nothing has room set aside in it."""
        copy = folder.with_name("copy")
        _run("cp", "-a", "--sparse=always", str(folder), str(copy))
        shutil.rmtree(folder)
        copy.rename(folder)

    def break_down(self) -> None:
        """As after an error of the device: the kernel makes it read-only under those who use it."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.path)], check=False, capture_output=True)


@contextmanager
def small_disk(folder: Path, megabytes: int, *options: str) -> Iterator[SmallDisk]:
    """`options`: for mkfs.ext4. Raises CalledProcessError where loop devices cannot be mounted."""
    image, path = folder / "image", folder / janitor.begin()
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", *options, str(image))
    disk = SmallDisk(image, path)
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()


@contextmanager
def copying_disk(folder: Path) -> Iterator[SmallDisk]:
    """A btrfs of its smallest size but one: it writes nothing in place. Raises as `small_disk`."""
    image, path = folder / "image", folder / janitor.begin()
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(128 << 20)
    _run("mkfs.btrfs", "-q", "--mixed", str(image))
    disk = SmallDisk(image, path, "loop")
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
