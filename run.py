"""Installs rmq into .venv beside this file and runs it. Needs Python 3.11 or newer with pip, nothing else.

    python3 run.py          the tour: a cluster in one process, real messages, a report
    python3 run.py test     linters, types, import contracts, tests
    python3 run.py quick    ruff and a part of the tests, in less than a minute: for daily work
    python3 run.py audit    asks PyPI which pinned versions have known faults; fails also where it cannot be asked

Running it again is quick: what is installed stays as long as constraints.txt and pyproject.toml do not change.
Must stay readable for old Pythons, so that they can say what is wrong.
"""

import hashlib
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python")
STAMP = os.path.join(VENV, "rmq-installed")
OLDEST = (3, 11)
PIP_AUDIT = "pip-audit==2.10.1"
NO_VENV = "no venv could be made; on Debian or Ubuntu run `apt install python3-venv` first"
TOUR = [("tour", [PYTHON, os.path.join("examples", "tour.py")])]
CHECKS = [
    ("ruff", [PYTHON, "-m", "ruff", "check", "."]),
    ("format", [PYTHON, "-m", "ruff", "format", "--check", "-q", "."]),
    ("mypy", [PYTHON, "-m", "mypy"]),
    ("import contracts", [os.path.join(BIN, "lint-imports")]),
    ("tests", [PYTHON, "-m", "pytest", "-q", "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"]),
]

QUICK = [  # every room, with what is quick there
    "tests/test_house.py", "tests/test_rules.py", "tests/test_config.py", "tests/raft", "tests/routing", "tests/delivery",
    "tests/access", "tests/nameserver", "tests/net", "tests/log/test_record.py", "tests/log/test_commitlog.py",
    "tests/log/test_consumequeue.py", "tests/log/test_recovery.py", "tests/log/test_derived.py", "tests/log/test_index.py",
    "tests/broker/test_send.py", "tests/broker/test_pull.py", "tests/broker/test_topics.py", "tests/broker/test_offsets.py",
    "tests/broker/test_start_stop.py", "tests/client/test_producer.py", "tests/client/test_consumer.py",
    "tests/client/test_routes.py", "tests/sim/test_stories.py", "tests/cli/test_program.py",
]  # fmt: skip
COMMANDS = {"test": CHECKS, "quick": [CHECKS[0], CHECKS[1], ("quick tests", CHECKS[-1][1] + QUICK)]}


def main(arguments):
    if sys.version_info < OLDEST:
        return stop("this is Python {}.{}; rmq needs 3.11 or newer: python3.12 run.py".format(*sys.version_info[:2]))
    if len(arguments) > 1 or not set(arguments) <= {"audit", *COMMANDS}:
        return stop(__doc__)
    os.chdir(ROOT)
    if arguments == ["audit"]:
        return audit()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of the many processes would compile all it imports, 0.3 s of CPU
    install(["spark", "dashboard", "dev"] if arguments else ["spark", "dashboard"])
    return run_all(COMMANDS[arguments[0]] if arguments else TOUR)


def install(extras):
    """Bring .venv to the pinned versions, if it is not there already."""
    if is_installed(extras):
        return
    if not os.path.exists(PYTHON):
        say("making .venv")
        if subprocess.call([sys.executable, "-m", "venv", VENV]):
            sys.exit(stop(NO_VENV))
    if not has_pyspark():  # first, alone: the one package without a wheel
        say("installing pyspark; this downloads 456 MB (Python and jars in one archive) and unpacks it, a few minutes")
        pip("--no-deps", "pyspark")
    say("installing the rest (wheels only)")
    pip("--only-binary", ":all:", "--no-binary", "pyspark", "-e", ".[{}]".format(",".join(extras)))
    with open(STAMP, "w") as file:
        file.write("{} {}".format(wanted(), ",".join(extras)))


def audit():
    """In an environment of its own: what audits is no dependency."""
    folder = os.path.join(ROOT, ".venv-audit")
    programs = os.path.join(folder, "Scripts" if os.name == "nt" else "bin")
    if subprocess.call([sys.executable, "-m", "venv", folder]):
        return stop(NO_VENV)
    if subprocess.call([os.path.join(programs, "python"), "-m", "pip", "install", "-q", "--only-binary", ":all:", PIP_AUDIT]):
        return stop("pip failed, see above; after mending it (network? disk?) run the same command again")
    found = [os.path.join(programs, "pip-audit"), "--strict", "--no-deps", "--disable-pip", "-r", "constraints.txt"]
    return subprocess.call(found)


def pip(*arguments):
    command = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "-c", "constraints.txt"]
    if subprocess.call(command + list(arguments)):
        sys.exit(stop("pip failed, see above; after mending it (network? disk?) run the same command again"))


def has_pyspark():
    with open("constraints.txt") as file:
        pinned = [line.strip().split("==")[1] for line in file if line.startswith("pyspark==")]
    look = "import importlib.metadata as m, sys; sys.exit(m.version('pyspark') != sys.argv[1])"
    return subprocess.call([PYTHON, "-c", look, pinned[0]], stderr=subprocess.DEVNULL) == 0


def is_installed(extras):
    try:
        with open(STAMP) as file:
            digest, _, names = file.read().partition(" ")
    except OSError:
        return False
    return digest == wanted() and set(extras) <= set(names.split(","))


def wanted():
    """What the installation depends on, as one digest."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def run_all(commands):
    """Run every command, also after one failed; the exit code says whether all were fine."""
    failed = []
    for name, command in commands:
        say(name)
        started = time.monotonic()
        if subprocess.call(command):
            failed.append(name)
        say("{}: {} after {:.0f} s".format(name, "FAILED" if name in failed else "fine", time.monotonic() - started))
    return stop("failed: {}".format(", ".join(failed))) if failed else 0


def say(line):
    print("== " + line, flush=True)


def stop(why):
    print(why, file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
