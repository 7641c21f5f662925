"""What a client is called: by its host and its instance."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from rmq.client.shared.session import local_ip, own_name

ASKS = (
    "import json, sys; from rmq.client import Client;"
    "print(json.dumps([Client(each, instance='svc').client_id for each in sys.argv[1:]]))"
)
LINKS = "ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up"


def ids_on(addresses: list[str], *nameservers: str) -> list[str]:
    """Of clients of one name on a host that has these addresses, and no way to others; one for each nameserver."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("needs root, ip and unshare")
    made = [f"ip addr add {address} dev v0 {'nodad' if ':' in address else ''}" for address in addresses]
    steps = " && ".join([LINKS, *made, 'exec "$@"'])
    inside = ["unshare", "--net", "--uts", "sh", "-c", f"hostname box && {steps}", "sh"]
    words = [*inside, sys.executable, "-c", ASKS, *nameservers]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if "not permitted" in ran.stderr:
        pytest.skip(ran.stderr)
    found: list[str] = json.loads(ran.stdout or ran.stderr)
    return found


def test_hosts_without_a_way_to_everywhere_have_names_of_their_own() -> None:
    """C9: with IPv6 only, or no default route, all hosts were 127.0.0.1. Clients of one instance name on two of them counted as
    one member of a group, and both handled all its messages, in order, too."""
    found = ids_on(["10.99.7.5/24", "fd99::5/64"], "10.99.7.1:9876", "[fd99::1]:9876", "names.example:9876", "127.0.0.1:9876")
    assert found == ["10.99.7.5@svc", "[fd99::5]@svc", "box@svc", "127.0.0.1@svc"]


def test_a_host_that_is_a_client_of_itself() -> None:
    assert own_name("127.0.0.1", ["localhost", "::1"]) == "127.0.0.1"
    assert own_name("10.1.2.3", ["10.0.0.1"]) == "10.1.2.3"
    assert local_ip(["127.0.0.1"])
