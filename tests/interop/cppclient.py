"""RocketMQ's C++ client by its wrapper on PyPI (`rocketmq` 0.4.4), in an environment of its own: how cpp.py is run."""

import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("RMQ_INTEROP_CACHE", Path.home() / ".cache" / "rmq" / "interop")) / "pypi-rocketmq-0.4.4"
_INSTALL = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "rocketmq==0.4.4"]


def install(home: Path) -> str:
    """The wheel in a cache; it brings the C++ library for Linux on x86-64. Returns why it cannot be used, "" if it can."""
    if not CACHE.is_dir():
        done = subprocess.run([*_INSTALL, "--target", str(CACHE)], capture_output=True, text=True)
        if done.returncode:
            return f"PyPI's rocketmq 0.4.4 does not install here: {done.stderr.strip()[-200:]}"
    loaded = subprocess.run(command("check"), capture_output=True, text=True, env=environment(home))
    return f"PyPI's rocketmq 0.4.4 does not load here: {loaded.stderr.strip()[-200:]}" if loaded.returncode else ""


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(Path(__file__).parent / "cpp.py"), *arguments]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CACHE), "HOME": str(home)}  # its log goes to $HOME
