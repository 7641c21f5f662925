"""Jars from Maven Central."""

import subprocess
from pathlib import Path
from typing import Final

TRIES: Final = 3  # a repository far away breaks off now and then; what came already stays
GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
"""With its version: by the short name Maven asks for two lists first, and fails without them."""


def fetch(pom: Path, folder: Path) -> None:
    """The jars that `pom` names, and theirs, into `folder`, which appears when it has all of them."""
    fresh = folder.with_name(folder.name + ".new")
    words = ["mvn", "-B", "-U", "-f", str(pom), GOAL, f"-DoutputDirectory={fresh}"]
    for _ in range(TRIES):
        told = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if told.returncode == 0:
            fresh.rename(folder)
            return
    raise RuntimeError(f"Maven did not fetch what {pom} names, {TRIES} times: {told.stdout[-2000:]}{told.stderr[-1000:]}")
