"""A small ext4 (or btrfs), to be filled, starved of inodes, or broken: a file mounted by loop. Needs root and Linux."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import janitor


def why_not() -> str:
    """Says why there can be no such disk here; "" if there can."""
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
        """Moves the disk as into another machine: a copy of its image is mounted, read-write.

        It is a copy, because a process that made a mount namespace meanwhile (another test's network) holds the old image
        mounted, and if the kernel made that read-only, every later mount of the same image is read-only, too.
        """
        self.unmount()
        moved = self._image.with_name("moved")
        _run("cp", "--sparse=always", str(self._image), str(moved))
        self._image = moved
        self.mount()

    def fill(self, leave_bytes: int) -> None:
        """Fills the disk with a file, all but so many bytes."""
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
        """Takes all inodes that are left, with empty files."""
        (self.path / "files").mkdir()
        try:
            while True:
                self._ballast += 1
                (self.path / "files" / str(self._ballast)).touch()
        except OSError:
            pass

    def free(self) -> None:
        """Gives back what `fill` and `take_inodes` took."""
        (self.path / "ballast").unlink(missing_ok=True)
        shutil.rmtree(self.path / "files", ignore_errors=True)

    def make_sparse(self, folder: Path) -> None:
        """Replaces the folder by a copy in which no file has room set aside."""
        copy = folder.with_name("copy")
        _run("cp", "-a", "--sparse=always", str(folder), str(copy))
        shutil.rmtree(folder)
        copy.rename(folder)

    def break_down(self) -> None:
        """Makes the disk read-only under the processes that use it, as the kernel does after an error of the device."""
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
