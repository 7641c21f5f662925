"""Stores in another file system: an S3 server beside the tests, and copying there."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analytics.stores import files

NO_S3 = "needs an S3 server: pip install 'moto[server]' (into any environment whose bin/ is on the PATH)"
_OPTIONS = "allow_bucket_creation=true&allow_delayed_open=true&region=us-east-1"


@contextmanager
def s3_bucket() -> Iterator[str]:
    """The address of a bucket on a server that speaks S3 over HTTP; "" if there is no such server."""
    program = shutil.which("moto_server")
    if program is None:
        yield ""
        return
    command = [program, "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            found = next(filter(None, (re.search(r"http://(127\.0\.0\.1:\d+)", line) for line in process.stderr)), None)
            assert found, "moto_server ended before it said where it listens"
            threading.Thread(target=process.stderr.read, name="what moto_server says", daemon=True).start()
            yield f"s3a://key:secret@bucket?endpoint_override={found[1]}&scheme=http&{_OPTIONS}"
        finally:
            process.terminate()


def upload(store: Path, address: str) -> None:
    for file in store.rglob("*"):
        if file.is_file():
            place = files.directory(address) / str(file.relative_to(store))
            assert isinstance(place, files.Remote)
            system, path = files.system_of(place.full)
            system.create_dir(path.rpartition("/")[0], recursive=True)
            with system.open_output_stream(path) as out:
                out.write(file.read_bytes())
