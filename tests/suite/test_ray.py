"""A suite on real Ray clusters: of two processes, one of which is killed half way, and of three nodes, one of which is lost. The results are those of the local engine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.suites import make_folder, onnxproof, verdicts

from onnxproof.errors import BackendError
from onnxproof.suite.cluster_check import check_cluster
from onnxproof.suite.store import Store

ray = pytest.importorskip("ray")
SUITE = """
[suite]
name = "s"
budget_s = 20
cases = ["ordinary-0", "ordinary-1"]
explain = false
transport = "object-store"

[[model]]
name = "m{n}"
subject = "model.py:slow"
file = "good.onnx"
depends = ["*.npy"]
n = [0, 1, 2, 3, 4]

[[model]]
name = "bad"
subject = "model.py:build"
file = "bad.onnx"
depends = ["*.npy"]

[[model]]
name = "crash"
subject = "model.py:crash"
file = "good.onnx"
depends = ["*.npy"]
"""
GREEDY = """
[[model]]
name = "gpu"
subject = "model.py:build"
file = "good.onnx"
gpus = 64

[[model]]
name = "wide"
subject = "model.py:build"
file = "good.onnx"
cores = 64
memory_gb = 9000
depends = ["*.npy"]
"""


def running_tasks(mark: str) -> list[int]:
    """Processes of Ray that run a model of this test's suite."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            title = (process / "cmdline").read_bytes()
            if title.startswith(b"ray::m") and mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def count(history: Path) -> int:
    with suppress(Exception), Store(history) as store:
        return len(store.results(1))
    return 0


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "suite.toml").write_text(SUITE + GREEDY)
    mark = f"SUITE_OF_TEST={folder}"
    command = [sys.executable, "-m", "onnxproof", "suite", "suite.toml", "--engine", "ray"]
    driver = subprocess.Popen(
        [*command, "--history", "h.sqlite", "--json", "ray.json", "-j", "2"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLOW_S": "1.5", "SUITE_OF_TEST": str(folder)},
    )
    killed = 0
    while driver.poll() is None and not killed:
        tasks = running_tasks(mark)
        if count(folder / "h.sqlite") >= 2 and tasks:
            os.kill(tasks[0], signal.SIGKILL)
            killed = tasks[0]
        time.sleep(0.05)
    _, said = driver.communicate(timeout=250)
    if "error[no-cluster]" in said:
        pytest.skip("Ray's own processes did not start in time on this machine")
    assert killed and driver.returncode == 1, said
    wanted = {f"m{n}": "faithful" for n in range(5)} | {"bad": "diverged", "crash": "error"}
    # cores and memory are held to what is there; a GPU that is not can't be waited for
    wanted |= {"gpu": "error", "wide": "faithful"}
    assert verdicts(folder / "ray.json") == wanted
    results = {
        item["name"]: item for item in json.loads((folder / "ray.json").read_text())["results"]
    }
    assert "about to crash" in results["crash"]["error"]
    assert "it needs 64 GPU, which this machine lacks" in results.pop("gpu")["error"]

    done = onnxproof(folder, "suite", "suite.toml", "--json", "local.json", "-j", "2")
    assert done.returncode == 1, done.stderr
    local = {
        item["name"]: item for item in json.loads((folder / "local.json").read_text())["results"]
    }
    same = ("verdict", "gate", "key", "noise_ratio", "backends", "passed", "summary")
    assert local.pop("gpu")["verdict"] == "faithful"  # the local engine reserves none
    for name, item in local.items():
        assert {key: item[key] for key in same} == {key: results[name][key] for key in same}


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_an_address_where_nothing_listens_is_told_at_once(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "suite.toml").write_text(SUITE)
    address = f"127.0.0.1:{closed_port()}"
    start = time.monotonic()
    done = onnxproof(folder, "suite", "suite.toml", "--engine", "ray", "--address", address)
    assert done.returncode == 2, done.stderr
    assert f"error[no-cluster]: there is no Ray cluster at `{address}`" in done.stderr
    assert "Connection refused" in done.stderr and "`ray start --head`" in done.stderr
    assert time.monotonic() - start < 60  # Ray itself did not end within 600 s


def test_a_port_that_is_not_rays_is_given_up_after_the_limit():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(BackendError, match="within 3 s") as error:
            check_cluster(ray, address, limit_s=3.0)
    assert error.value.code == "cluster-silent"


@pytest.mark.parametrize("address", ["127.0.0.1:port", "auto"])
def test_an_address_that_leads_nowhere_is_told(address, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # no cluster has left its address there
    with pytest.raises(BackendError, match=f"no Ray cluster at `{address}`") as error:
        check_cluster(ray, address)
    assert error.value.code == "no-cluster"


CLUSTER = """
import sys
from ray.cluster_utils import Cluster

def started(add, *words, **more):
    for attempt in range(3):
        try:
            return add(*words, **more)
        except Exception as why:  # Ray's own processes have 15 s, which no setting changes
            print(why, file=sys.stderr)
    print("none", flush=True)
    sys.exit()

head = {"num_cpus": 0, "include_dashboard": False}
cluster = started(Cluster, initialize_head=True, head_node_args=head)
nodes = [started(cluster.add_node, num_cpus=1) for _ in range(2)]
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(nodes[0], allow_graceful=False)
print("gone", flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@pytest.fixture
def cluster(tmp_path):
    """A cluster of a head without cores and of two nodes with one; a line to its input ends one of them."""
    quick = {f"RAY_health_check_{name}": "500" for name in ("initial_delay_ms", "period_ms")}
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "cluster.txt").open("w"),
        text=True,
        env={**os.environ, **quick, "RAY_health_check_failure_threshold": "3", "SLOW_S": "1.5"},
    )
    yield process
    process.stdin.close()
    process.wait(timeout=60)


@pytest.mark.slow
def test_a_lost_node_loses_no_verdict(tmp_path, cluster):
    address = cluster.stdout.readline().strip()
    if address in ("", "none"):
        pytest.skip("Ray's own processes did not start in time on this machine")
    folder = make_folder(tmp_path)
    (folder / "suite.toml").write_text(SUITE)
    words = ("suite", "suite.toml", "--engine", "ray", "--address", address)
    driver = subprocess.Popen(
        [sys.executable, "-m", "onnxproof", *words, "--history", "h.sqlite", "--json", "ray.json"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while driver.poll() is None and count(folder / "h.sqlite") < 2:
        assert time.monotonic() < deadline, "no verdict within two minutes"
        time.sleep(0.1)
    done = count(folder / "h.sqlite")
    cluster.stdin.write("lose a node\n")
    cluster.stdin.flush()
    assert cluster.stdout.readline() == "gone\n"
    _, said = driver.communicate(timeout=250)
    assert done < 7 and driver.returncode == 1, said
    wanted = {f"m{n}": "faithful" for n in range(5)} | {"bad": "diverged", "crash": "error"}
    assert verdicts(folder / "ray.json") == wanted
