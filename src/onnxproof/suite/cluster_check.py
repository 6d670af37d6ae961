"""Whether a Ray cluster answers at an address, within a limit.

`ray.init` waits for a cluster that is not there without an end (2.60, measured: over 600 s at a closed port), in native code that no signal ends. So:

1. An address with a port must take a connection. Ray reads a loopback address as the node's own, so that one counts too.
2. A process of its own connects as the driver would, and is ended after the limit.
"""

import socket
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

from onnxproof.errors import BackendError

LIMIT_S = 60.0
"""Seconds that a cluster has to answer. One on the same two cores took 0.5 to 1.2 at a load of 5 (measured); the rest is for slow networks (not measured)."""
_CONNECT_S = 5.0
_LOOPBACKS = ("127.0.0.1", "localhost", "::1")
_HELP = "`ray start --head` starts one; `--address auto` finds one on this machine"
_PROBE = """
import sys
import ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
except BaseException as why:
    print(str(why) or repr(why))
    sys.exit(1)
ray.shutdown()
"""


def check_cluster(ray: Any, address: str, limit_s: float = LIMIT_S) -> None:
    """Raise `no-cluster` where nothing takes a connection or Ray refuses, and `cluster-silent` where nothing answers within the limit."""
    host, port = _place(address)
    if host and port:
        _check_port(ray, address, host, port)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as why:
        raise BackendError(
            "cluster-silent",
            f"no Ray cluster answered at `{address}` within {limit_s:g} s",
            help=f"is it the address that `ray start --head` printed? {_HELP}",
        ) from why
    if done.returncode:
        raise no_cluster(address, done.stdout.strip() or f"exit code {done.returncode}")


def no_cluster(address: str, why: object) -> BackendError:
    """The error for an address where there is none."""
    return BackendError("no-cluster", f"there is no Ray cluster at `{address}`: {why}", help=_HELP)


def _place(address: str) -> tuple[str | None, int | None]:
    """Host and port of `host:port` or `ray://host:port`; `auto` has no port."""
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        return place.hostname, place.port
    except ValueError as why:
        raise no_cluster(address, why) from why


def _check_port(ray: Any, address: str, host: str, port: int) -> None:
    hosts = [host]
    if host in _LOOPBACKS:
        hosts.append(ray.util.get_node_ip_address())
    reasons = []
    for each in hosts:
        try:
            with socket.create_connection((each, port), timeout=_CONNECT_S):
                return
        except OSError as why:
            reasons.append(str(why))
    raise no_cluster(address, reasons[0])
