"""kill -9 of Spark's drivers: what they export, make tables of and stream is there once.

    python -m tests.analytics.kills [--kills 6]

The test of one kill, made longer: the second one is in the middle of a second export, too. From the fourth on Spark is a
cluster, whose workers are processes of their own; it reads two stores there. A kill takes 15 to 60 s. Prints what was killed, and
when.
"""

import argparse
import os
import sys
from pathlib import Path

import pytest


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=6, help="4 and more: in a cluster, too")
    os.environ["RMQ_TEST_SPARK_KILLS"] = str(parser.parse_args().kills)
    landing = Path(__file__).parent / "spark" / "test_landing.py"
    return pytest.main(["-q", "-s", f"{landing}::test_a_driver_is_killed_and_everything_lands_once"])


if __name__ == "__main__":
    sys.exit(main())
