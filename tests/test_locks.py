"""What is installed is locked: versions, and hashes of files (S15)."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import run

ROOT = Path(__file__).parent.parent
ASKED: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = ASKED["project"]["optional-dependencies"]
NEEDS = {
    "node": [*ASKED["project"]["dependencies"], *EXTRAS["dashboard"]],
    "tour": [*ASKED["project"]["dependencies"], *EXTRAS["dashboard"], *EXTRAS["spark"]],
    "test": [*ASKED["project"]["dependencies"], *(need for extra in EXTRAS.values() for need in extra)],
    **ASKED["dependency-groups"],
}


def locked(name: str) -> dict[str, Version]:
    """The version of each package."""
    found = {}
    for entry in (ROOT / run.path_of(name)).read_text().replace("\\\n", " ").splitlines():
        if not entry.startswith("#"):
            said = re.fullmatch(r"([\w.-]+)==([\w.]+)( ; [^-]+)?((?: +--hash=sha256:[0-9a-f]{64})+)", entry)
            assert said, f"{name}: no version, or no hash: {entry[:80]}"
            found[canonicalize_name(said[1])] = Version(said[2])
    return found


@pytest.mark.parametrize("name", NEEDS)
def test_every_dependency_is_locked_with_hashes(name: str) -> None:
    versions = locked(name)
    for need in map(Requirement, NEEDS[name]):
        version = versions.get(canonicalize_name(need.name))
        assert version in need.specifier if version else False, f"{need}: run python3 run.py lock"


def test_the_locks_are_what_is_asked_for() -> None:
    """Each is there, and where two name a package they name one version of it."""
    assert [name for name, _ in run.LOCKS] == ["test", "tour", "node", "build", "tools"]
    assert {path.stem for path in (ROOT / "locks").iterdir()} == set(NEEDS)
    everything = locked("test")
    for part in ("tour", "node"):
        assert locked(part).items() <= everything.items()


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 15, 0)])
def test_a_python_that_the_locks_do_not_know_is_told_at_once(
    version: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With 3.15 pip said after a while that there is no version of a package, and that the network or the disk were to blame."""
    monkeypatch.setattr(sys, "version_info", version)
    assert run.main([]) == 1
    assert "rmq needs 3.11 to 3.14" in capsys.readouterr().err
