"""What messages cost, beside Apache RocketMQ and other brokers, on this machine; each row with its goal.

    python -m benchmarks.run [--only NAME ...] [--rounds N] [--quick] [--sync] [--no-apache] [--no-peers] [--json FILE]

Needs Linux (/proc) and a C compiler. Apache RocketMQ runs beside rmq where Maven and a JDK are present, Redis, NATS and RabbitMQ
where Debian's packages are installed; what is missing is said. CPU is user + system time of the processes meant, divided by
the messages that they stored or gave out, which is checked. Medians of rounds in turns. Sections, for --only:

"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from benchmarks import (  # noqa: E402
    brokers,
    cold,
    flat,
    group,
    javaproducer,
    kinds,
    pauses,
    processes,
    pulls,
    pyclient,
    recovery,
    rest,
    rows,
    targets,
)
from benchmarks.machine import machine  # noqa: E402
from benchmarks.options import Options, say  # noqa: E402

SECTIONS = {
    section.NAME: section
    for section in (brokers, pyclient, pulls, kinds, javaproducer, group, recovery, rest, flat, cold, processes, pauses)
}


def arguments() -> argparse.Namespace:
    about = "\n".join(f"    {name:12} {(section.__doc__ or '').splitlines()[0]}" for name, section in SECTIONS.items())
    parser = argparse.ArgumentParser(description=f"{__doc__}{about}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="this section; may be given several times")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, two rounds: a first look, not a result")
    parser.add_argument("--sync", action="store_true", help="sends are answered once they are synced")
    parser.add_argument("--no-apache", action="store_true", help="leave out Apache RocketMQ")
    parser.add_argument("--no-peers", action="store_true", help="leave out Redis, NATS and RabbitMQ")
    parser.add_argument("--minutes", type=float, default=10.0, help="of full load, where the longest pauses are looked for")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write settings and figures there too")
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", help="where RocketMQ's jars are kept")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    missing = "left out by --no-apache" if asked.no_apache else targets.apache_missing()
    if missing:
        say(f"Apache RocketMQ does not run beside: {missing}")
    share, count = (0.2, 2) if asked.quick else (1.0, asked.rounds)
    here = machine() | {"rounds": count, "share": share, "flush": "sync" if asked.sync else "async"}
    here |= {
        "body_bytes": 500,
        "page_cache": "as it was" if asked.quick else "full",
        "apache_rocketmq": missing or targets.ROCKETMQ_VERSION,
    }
    say("  ".join(f"{key}={value}" for key, value in here.items()))
    found: list[rows.Row] = []
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder:
        options = Options(Path(folder), count, share, asked.sync, missing, not asked.no_peers, asked.cache, asked.minutes)
        for name in asked.only or SECTIONS:
            began = time.monotonic()
            say(f"{name}:")
            found += SECTIONS[name].measure(options.below(name))
            say(f"{name} took {time.monotonic() - began:.0f} s")
    print("  ".join(f"{key}={value}" for key, value in here.items()))
    rows.show(found)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": here, "figures": [row.as_json() for row in found]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
