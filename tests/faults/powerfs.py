"""A small file system in memory that forgets what was not flushed when the power goes: `MemoryDisk` behind the kernel's FUSE.

    python -m tests.faults.powerfs MOUNTPOINT [--flush-ms 3]

It speaks the kernel's protocol on /dev/fuse by itself [linux/fuse.h, version 7.31], so it needs root and Linux, and no
library. Orders come as lines of JSON on standard input, each is answered by one on standard output:

    {"do": "lose", "seed": 1, "share": 0.5}    power loss: that share of unflushed sectors and names survives; mounted anew
    {"do": "fail", "operation": "fdatasync", "path": "commitlog", "errno": 5}    such operations fail until healed
    {"do": "heal"}

It ends, unmounted, when its standard input does. `PowerFs` is the other end of that pipe.
"""

import argparse
import asyncio
import ctypes
import errno
import json
import os
import random
import select
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import Struct
from typing import Any

from rmq.log.files.memory import MemoryDisk
from tests import janitor

ROOT_ID, ROOT = 1, "/fs"
_IN, _OUT = Struct("<IIQQIIII"), Struct("<IiQ")
_ATTR = Struct("<QQQQQQIIIIIIIIII")
_ENTRY, _ATTR_HEAD, _OPEN = Struct("<QQQQII"), Struct("<QII"), Struct("<QIi")
_INIT = Struct("<IIIIHHIIHHI28x")
_STATFS = Struct("<QQQQQIIII24x")
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_MAX_WRITE = 1 << 20
_FOR_EVER_S = 3600  # nobody else changes what the kernel has cached; a power loss mounts anew
_SET_SIZE = 1 << 3
_LAZY = 2
_SILENT = (2, 36, 42)  # forget, interrupt, batch forget: no answer is expected
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Why this file system cannot be used here; "" if it can."""
    if not os.path.exists("/dev/fuse"):
        return "needs /dev/fuse"
    return "" if os.geteuid() == 0 else "needs root, to mount"


class Files:
    """The kernel's requests as calls of a MemoryDisk. Nodes are numbered; a number is never used again."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self._paths = {ROOT_ID: ROOT}
        self._ids = {ROOT: ROOT_ID}
        self._last = ROOT_ID
        disk.make_directory(ROOT)

    def answer(self, opcode: int, node: int, body: bytes) -> bytes:
        """Returns what follows the header of the answer. Raises OSError."""
        handler = self._HANDLERS.get(opcode)
        if handler is None:
            raise OSError(errno.ENOSYS, f"request {opcode}")
        return handler(self, node, body)

    def path(self, node: int) -> str:
        if node not in self._paths:
            raise OSError(errno.ENOENT, "gone")
        return self._paths[node]

    def _id(self, path: str) -> int:
        if path not in self._ids:
            self._last += 1
            self._ids[path], self._paths[self._last] = self._last, path
        return self._ids[path]

    def _drop(self, path: str) -> None:
        self._paths.pop(self._ids.pop(path, 0), None)

    def _below(self, node: int, name: bytes) -> str:
        return f"{self.path(node)}/{name.rstrip(bytes(1)).decode()}"

    def _attributes(self, path: str) -> bytes:
        directory = self.disk.is_directory(path)
        size = 0 if directory else self.disk.size(path)
        mode = stat.S_IFDIR | 0o700 if directory else stat.S_IFREG | 0o600
        return _ATTR.pack(self._id(path), size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _entry(self, path: str) -> bytes:
        if not self.disk.exists(path):
            raise OSError(errno.ENOENT, path)
        attributes = self._attributes(path)
        return _ENTRY.pack(self._id(path), 0, _FOR_EVER_S, _FOR_EVER_S, 0, 0) + attributes

    # --- requests -----------------------------------------------------------------------------------------------------

    def init(self, node: int, body: bytes) -> bytes:
        return _INIT.pack(7, 31, 1 << 17, _BIG_WRITES | _MAX_PAGES, 12, 9, _MAX_WRITE, 1, _MAX_WRITE // 4096, 0, 0)

    def lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(self._below(node, body))

    def getattr(self, node: int, body: bytes) -> bytes:
        return _ATTR_HEAD.pack(_FOR_EVER_S, 0, 0) + self._attributes(self.path(node))

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size = Struct("<IIQQ").unpack_from(body)
        if valid & _SET_SIZE:
            handle = self.disk.open(self.path(node))
            self.disk.truncate(handle, size)
            self.disk.close(handle)
        return self.getattr(node, b"")

    def mkdir(self, node: int, body: bytes) -> bytes:
        path = self._below(node, body[8:])
        self.disk.make_directory(path)
        return self._entry(path)

    def unlink(self, node: int, body: bytes) -> bytes:
        path = self._below(node, body)
        self.disk.unlink(path)
        self._drop(path)
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        path = self._below(node, body)
        self.disk.remove_directory(path)
        self._drop(path)
        return b""

    def rename(self, node: int, body: bytes) -> bytes:
        (new_node,) = Struct("<Q").unpack_from(body)
        old_name, new_name, _ = body[8:].split(b"\0", 2)
        old, new = self._below(node, old_name), self._below(new_node, new_name)
        self.disk.rename(old, new)
        self._drop(new)
        number = self._id(old)
        self._ids[new], self._paths[number] = self._ids.pop(old), new
        return b""

    def open(self, node: int, body: bytes) -> bytes:
        return _OPEN.pack(self.disk.open(self.path(node)), 0, 0)

    def create(self, node: int, body: bytes) -> bytes:
        path = self._below(node, body[16:])
        handle = self.disk.create(path)
        return self._entry(path) + _OPEN.pack(handle, 0, 0)

    def read(self, node: int, body: bytes) -> bytes:
        handle, offset, size = Struct("<QQI").unpack_from(body)
        return self.disk.pread(handle, size, offset)

    def write(self, node: int, body: bytes) -> bytes:
        handle, offset, size = Struct("<QQI").unpack_from(body)
        written = self.disk.pwrite(handle, memoryview(body)[40 : 40 + size], offset)
        return Struct("<II").pack(written, 0)

    def statfs(self, node: int, body: bytes) -> bytes:
        return _STATFS.pack(1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0)

    def release(self, node: int, body: bytes) -> bytes:
        self.disk.close(*Struct("<Q").unpack_from(body))
        return b""

    def fsync(self, node: int, body: bytes) -> bytes:
        self.disk.fdatasync(*Struct("<Q").unpack_from(body))
        return b""

    def fsyncdir(self, node: int, body: bytes) -> bytes:
        self.disk.fsync_directory(self.path(node))
        return b""

    def fallocate(self, node: int, body: bytes) -> bytes:
        handle, offset, length, mode = Struct("<QQQI").unpack_from(body)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "only plain allocation")
        self.disk.allocate(handle, max(offset + length, self.disk.size(self.path(node))))
        return b""

    def opendir(self, node: int, body: bytes) -> bytes:
        return _OPEN.pack(0, 0, 0)

    def readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = Struct("<QQI").unpack_from(body)
        path, found = self.path(node), b""
        for number, name in enumerate(self.disk.listdir(path)[offset:], offset + 1):
            kind = 4 if self.disk.is_directory(f"{path}/{name}") else 8
            text = name.encode()
            one = Struct("<QQII").pack(self._id(f"{path}/{name}"), number, len(text), kind) + text
            one += bytes(-len(one) % 8)
            if len(found) + len(one) > size:
                break
            found += one
        return found

    def nothing(self, node: int, body: bytes) -> bytes:
        return b""

    _HANDLERS: dict[int, Callable[["Files", int, bytes], bytes]] = {
        1: lookup, 3: getattr, 4: setattr, 9: mkdir, 10: unlink, 11: rmdir, 12: rename, 14: open, 15: read, 16: write,
        17: statfs, 18: release, 20: fsync, 26: init, 27: opendir, 28: readdir, 29: nothing, 30: fsyncdir, 34: nothing,
        35: create, 38: nothing, 43: fallocate,
    }  # fmt: skip


class Server:
    """Answers the kernel and takes orders, one at a time. A flush takes `flush_s`; what others ask goes on meanwhile."""

    def __init__(self, mountpoint: str, flush_s: float) -> None:
        self._mountpoint = mountpoint
        self._flush_s = flush_s
        self._disk = MemoryDisk()
        self._flushing: list[tuple[float, int, int, int, bytes]] = []  # when it is done, and the request
        self._mount()

    def _mount(self) -> None:
        self._files = Files(self._disk)
        self._fuse = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)  # who asked may be gone between select and read
        options = f"fd={self._fuse},rootmode=40000,user_id=0,group_id=0"
        source = os.environ.get(janitor.VARIABLE, "powerfs").encode()
        if _libc.mount(source, self._mountpoint.encode(), b"fuse.powerfs", 6, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount", self._mountpoint)

    def _unmount(self) -> None:
        _libc.umount2(self._mountpoint.encode(), _LAZY)
        os.close(self._fuse)
        self._flushing.clear()

    def run(self) -> None:
        _say({})
        while True:
            left = max(0.0, self._flushing[0][0] - time.monotonic()) if self._flushing else None
            ready, _, _ = select.select([self._fuse, 0], [], [], left)
            self._finish_flushes()
            if self._fuse in ready:
                self._take_request()
            if 0 in ready:
                line = sys.stdin.buffer.raw.readline()  # type: ignore[attr-defined]
                if not line:
                    self._unmount()
                    return
                _say(self._obey(json.loads(line)))

    def _take_request(self) -> None:
        try:
            request = os.read(self._fuse, _MAX_WRITE + 8192)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):  # whoever asked was interrupted
                return
            raise
        _, opcode, unique, node, *_ = _IN.unpack_from(request)
        body = request[_IN.size :]
        if opcode in _SILENT:
            return
        if opcode in (20, 30) and self._flush_s:
            self._flushing.append((time.monotonic() + self._flush_s, opcode, unique, node, body))
        else:
            self._answer(opcode, unique, node, body)

    def _finish_flushes(self) -> None:
        while self._flushing and self._flushing[0][0] <= time.monotonic():
            self._answer(*self._flushing.pop(0)[1:])

    def _answer(self, opcode: int, unique: int, node: int, body: bytes) -> None:
        try:
            data, code = self._files.answer(opcode, node, body), 0
        except OSError as error:
            data, code = b"", -(error.errno or errno.EIO)
        try:
            os.write(self._fuse, _OUT.pack(_OUT.size + len(data), code, unique) + data)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def _obey(self, order: dict[str, Any]) -> dict[str, int]:
        if order["do"] == "lose":
            return self._lose(random.Random(order["seed"]), order["share"])
        if order["do"] == "fail":
            self._disk.before = _failing(order["operation"], order["path"], order["errno"])
        else:
            self._disk.before = lambda operation, path: None
        return {}

    def _lose(self, chance: random.Random, share: float) -> dict[str, int]:
        """Loses power; returns how many unflushed sectors and names there were, and how many of them are gone."""
        asked = lost = 0

        def keep() -> bool:
            nonlocal asked, lost
            asked += 1
            kept = chance.random() < share
            lost += not kept
            return kept

        self._unmount()
        self._disk.operations.clear()
        self._disk.crash(keep)
        self._mount()
        return {"unflushed": asked, "lost": lost}


def _failing(operation: str, path: str, code: int) -> Callable[[str, str], None]:
    def before(found: str, at: str) -> None:
        if found == operation and path in at:
            raise OSError(code, os.strerror(code), at)

    return before


def _say(answer: dict[str, int]) -> None:
    print(json.dumps(answer), flush=True)


class PowerFs:
    """A mounted file system, in a process of its own: `async with mounted(directory) as fs`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def order(self, **order: Any) -> dict[str, int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        answer: dict[str, int] = json.loads(await self._process.stdout.readline())
        return answer

    async def lose_power(self, seed: int, share: float) -> dict[str, int]:
        """Loses power. Processes that use the file system get errors from then on, and must be killed."""
        return await self.order(do="lose", seed=seed, share=share)


@asynccontextmanager
async def mounted(directory: Path, flush_ms: int = 0) -> AsyncIterator[PowerFs]:
    """Mounts it at `directory`, which is made if need be. A flush takes `flush_ms`."""
    janitor.begin()
    await asyncio.to_thread(directory.mkdir, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.powerfs",
        str(directory),
        "--flush-ms",
        str(flush_ms),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield PowerFs(process)
    finally:
        process.stdin.close()
        await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mountpoint")
    parser.add_argument("--flush-ms", type=int, default=3, help="how long a flush takes")
    options = parser.parse_args()
    Server(options.mountpoint, options.flush_ms / 1000).run()


if __name__ == "__main__":
    main()
