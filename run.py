"""Installs rmq into .venv beside this file and runs it. Needs Python 3.11 to 3.14 with pip, nothing else.

    python3 run.py          the tour: a cluster in one process, real messages, a report
    python3 run.py test     linters, types, import contracts, tests
    python3 run.py quick    ruff and a part of the tests, in less than a minute: for daily work
    python3 run.py audit    asks PyPI which locked versions have known faults; fails also where it cannot be asked
    python3 run.py lock     writes locks/ after a change of dependencies; what need not change keeps its version

Only what locks/ names is installed, and only files with the hashes that stand there. Running it again is quick: what is installed
stays as long as locks/ and pyproject.toml do not change.
Must stay readable for old Pythons, so that they can say what is wrong.
"""

import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin")
PYTHON = os.path.join(BIN, "python")
STAMP = os.path.join(VENV, "rmq-installed")
OLDEST, NEWEST = (3, 11), (3, 14)  # what locks/ names has wheels for these
LOCKS = [  # each of them holds all that it needs; the first decides about versions
    ("test", ["pyproject.toml", "--all-extras"]),
    ("tour", ["pyproject.toml", "--extra", "spark", "--extra", "dashboard", "-c", "locks/test.txt"]),
    ("node", ["pyproject.toml", "--extra", "dashboard", "--extra", "grpc", "-c", "locks/test.txt"]),
    ("build", ["--group", "build"]),
    ("tools", ["--group", "tools"]),
]
STORED = "--config-settings=--build-option=--compression=stored"  # or 450 MB are compressed, to be read once: 20 s of a core
NO_VENV = "no venv could be made; on Debian or Ubuntu run `apt install python3-venv` first"
TOUR = [("tour", [PYTHON, os.path.join("examples", "tour.py")])]
CHECKS = [
    ("ruff", [PYTHON, "-m", "ruff", "check", "."]),
    ("format", [PYTHON, "-m", "ruff", "format", "--check", "-q", "."]),
    ("mypy", [PYTHON, "-m", "mypy"]),
    ("import contracts", [os.path.join(BIN, "lint-imports")]),
    ("tests", [PYTHON, "-m", "pytest", "-q", "-n", "5", "--dist", "loadfile", "--no-loadscope-reorder"]),
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
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        versions = sys.version_info[:2] + OLDEST + NEWEST
        return stop("this is Python {}.{}; rmq needs {}.{} to {}.{}: python3.12 run.py".format(*versions))
    if len(arguments) > 1 or not set(arguments) <= {"audit", "lock", *COMMANDS}:
        return stop(__doc__)
    os.chdir(ROOT)
    if arguments in (["audit"], ["lock"]):
        return audit() if arguments == ["audit"] else lock()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of the many processes would compile all it imports, 0.3 s of CPU
    install("test" if arguments else "tour")
    return run_all(COMMANDS[arguments[0]] if arguments else TOUR)


def install(what):
    """Brings .venv to what that lock says, if it is not there already. What builds pyspark and this project is locked, too."""
    if is_installed(what):
        return
    if not os.path.exists(PYTHON):
        say("making .venv")
        if subprocess.call([sys.executable, "-m", "venv", VENV]):
            sys.exit(stop(NO_VENV))
    say("installing what is missing; at first that downloads 600 MB, most of it pyspark (one archive), and takes a few minutes")
    pip(PYTHON, locked("build"))
    pip(PYTHON, [*locked(what), "--no-binary", "pyspark", "--no-build-isolation", "--use-pep517", STORED])
    pip(PYTHON, ["--no-deps", "--no-build-isolation", "-e", "."])
    subprocess.call([PYTHON, "-m", "compileall", "-qq", "-j", "0", VENV])  # on all cores; what is for other Pythons may fail
    with open(STAMP, "w") as file:
        file.write(wanted() + " " + what)


def audit():
    files = [word for name, _ in LOCKS for word in ("-r", path_of(name))]
    return subprocess.call([tool("pip-audit"), "--strict", "--require-hashes", "--disable-pip", *files])


def lock():
    uv = [tool("uv"), "pip", "compile", "-q", "--universal", "--python-version", "{}.{}".format(*OLDEST), "--generate-hashes"]
    uv += ["--no-annotate", "--custom-compile-command", "python3 run.py lock"]
    return max(subprocess.call([*uv, "-o", path_of(name), *what]) for name, what in LOCKS)


def tool(name):
    """A program of the lock `tools`, in an environment of its own: it is no dependency."""
    folder = os.path.join(ROOT, ".venv-tools")
    programs = os.path.join(folder, os.path.basename(BIN))
    if subprocess.call([sys.executable, "-m", "venv", folder]):
        sys.exit(stop(NO_VENV))
    pip(os.path.join(programs, "python"), ["-q", *locked("tools")])
    return os.path.join(programs, name)


def path_of(name):
    return os.path.join("locks", name + ".txt")


def locked(what):
    return ["--require-hashes", "--only-binary", ":all:", "-r", path_of(what)]


def pip(python, arguments):
    if subprocess.call([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", *arguments]):
        sys.exit(stop("pip failed, see above; after mending it (network? disk?) run the same command again"))


def is_installed(what):
    try:
        with open(STAMP) as file:
            digest, _, found = file.read().partition(" ")
    except OSError:
        return False
    return digest == wanted() and found in (what, "test")


def wanted():
    """What the installation depends on, as one digest."""
    digest = hashlib.sha256()
    for name in ["pyproject.toml", *(path_of(each) for each, _ in LOCKS)]:
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def run_all(commands):
    """Runs every command, also after one failed: the last one here, the others beside it, one by one, since it leaves a core free
    now and then. The exit code says whether all were fine."""
    with ThreadPoolExecutor(1) as beside:
        checks = [beside.submit(run, name, command, subprocess.PIPE) for name, command in commands[:-1]]
        codes = [run(*commands[-1])]
    codes = [check.result() for check in checks] + codes
    failed = [name for (name, _), code in zip(commands, codes, strict=True) if code]
    return stop("failed: {}".format(", ".join(failed))) if failed else 0


def run(name, command, output=None):
    """With `output` PIPE, what it prints comes in one piece at its end."""
    if output is None:
        say(name)
    started = time.monotonic()
    ended = subprocess.run(command, stdout=output, stderr=output and subprocess.STDOUT)
    if ended.stdout:
        print("\n" + ended.stdout.decode(errors="replace"))
    say("{}: {} after {:.0f} s".format(name, "FAILED" if ended.returncode else "fine", time.monotonic() - started))
    return ended.returncode


def say(line):
    print("== " + line + "\n", end="", flush=True)  # in one piece: two may speak at once


def stop(why):
    print(why, file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
