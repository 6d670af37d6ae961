"""A Ray cluster: one that runs already (`--address`), or one that is started here.

A model is a task with the cores, memory and GPUs of the manifest. On its node it is run as the local engine runs it, by a pool of one worker
that lives as long as Ray's own process does: so limits, last words and verdicts are the same, and torch is imported once. A node or process of Ray that is
lost takes its task along, and Ray starts that again. Results come back one by one, as they are there.

With `transport = "object-store"` the files that a model names, and the Python files of the suite's folder, go through Ray's
object store, each once; with "path" the nodes share a file system.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxproof.errors import BackendError, BackendMissing
from onnxproof.suite.cluster_check import check_cluster, no_cluster
from onnxproof.suite.job import Event, Job, Outcome, Setting
from onnxproof.suite.pool import ATTEMPTS, Pool

_WAIT_S = 0.5
"""Seconds between two words about how far it is."""
_LOOPBACK = "127.0.0.1"
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
_pools: dict[Setting, Pool] = {}
"""Of this process of Ray."""


def run(jobs: Sequence[Job], setting: Setting) -> Generator[Event, None, None]:
    """Every job as a task."""
    ray = _import()
    with _cluster(ray, setting):
        shipped = _Shipped(ray, setting)
        # Ray retries what it lost, never what raised.
        remote = ray.remote(max_retries=ATTEMPTS - 1)(run_job)
        waiting: dict[Any, Job] = {}
        largest = _largest_node(ray)
        for job in jobs:
            needs = _needs(job, setting)
            lacking = [f"{needs[name]:g} {name}" for name in needs if needs[name] > largest[name]]
            if lacking and not setting.address:
                yield Event(kind="ended", job=job, outcome=_no_node(lacking))
                continue
            if lacking:  # a node that has it may join
                note = f"waits for a node with {' and '.join(lacking)}, which the cluster lacks now"
                yield Event(kind="waiting", job=job, note=note)
            waiting[_submit(remote, job, setting, shipped)] = job
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1, timeout=_WAIT_S)
                for reference in done:
                    job = waiting.pop(reference)
                    yield Event(kind="ended", job=job, outcome=_outcome(ray, reference))
                yield Event(kind="waiting")
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)


def _import() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as why:
        raise BackendMissing(
            "ray-missing", "Ray is not installed", help="pip install 'onnxproof[ray]'"
        ) from why
    return ray


@contextmanager
def _cluster(ray: Any, setting: Setting) -> Generator[None, None, None]:
    """A connection to the cluster; one that was started here ends with the run."""
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, setting)
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, setting: Setting) -> None:
    if not setting.address:
        _start_here(ray, setting)
        return
    check_cluster(ray, setting.address)
    try:
        ray.init(address=setting.address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, SystemExit) as why:
        raise no_cluster(setting.address, why) from why


def _start_here(ray: Any, setting: Setting) -> None:
    """A cluster of this machine alone. Ray gives its own processes 15 s to start, which a busy machine may need twice (ray issue 65983)."""
    for attempt in range(ATTEMPTS):
        try:
            ray.init(
                address="local",  # never one that happens to run, or that died and left its address
                num_cpus=setting.jobs,
                include_dashboard=False,
                _node_ip_address=_LOOPBACK,
                _memory=setting.memory,
                **_QUIET,
            )
            return
        except Exception as why:  # Ray raises that very class where its processes don't come up
            ray.shutdown()
            if attempt == ATTEMPTS - 1:
                raise BackendError("no-cluster", f"no Ray cluster can be started: {why}") from why


def _submit(remote: Any, job: Job, setting: Setting, shipped: "_Shipped") -> Any:
    needs = _needs(job, setting)
    options: dict[str, Any] = {"num_cpus": needs["CPU"], "name": job.name}
    if "memory" in needs:
        options["memory"] = needs["memory"]
    if "GPU" in needs:
        options["num_gpus"] = needs["GPU"]
    one = replace(setting, jobs=int(needs["CPU"]), address="")
    return remote.options(**options).remote(job, one, shipped.files(job))


def _needs(job: Job, setting: Setting) -> dict[str, float]:
    """What Ray reserves for a job, in Ray's words; here it gets no more than there is, as by the local engine."""
    cores, memory = job.cores, job.memory
    if not setting.address:
        cores, memory = min(cores, setting.jobs), min(memory, setting.memory)
    needs: dict[str, float] = {"CPU": cores}
    if memory:
        needs["memory"] = memory
    if job.gpus:
        needs["GPU"] = job.gpus
    return needs


def _largest_node(ray: Any) -> Counter[str]:
    """The most that any node has of each resource."""
    largest: Counter[str] = Counter()
    for node in ray.nodes():
        if node["Alive"]:
            largest |= Counter(node["Resources"])
    return largest


def _no_node(lacking: Sequence[str]) -> Outcome:
    what = f"error[no-resources]: it needs {' and '.join(lacking)}, which this machine lacks"
    return Outcome(failure=f"{what}\n  = help: `--address` runs it on a cluster that has")


def run_job(job: Job, setting: Setting, files: Mapping[str, Any]) -> Outcome:
    """What a task does, on its node: the job in a process of its own, watched by a pool of one."""
    if files:
        job = _unpack(job, files)
    pool = _pools.setdefault(setting, Pool(setting))
    outcomes = [event.outcome for event in pool.run([job]) if event.kind == "ended"]
    outcome = outcomes[0]
    assert outcome is not None
    return replace(outcome, job=None)


def _outcome(ray: Any, reference: Any) -> Outcome:
    """The outcome of a task that has ended, however it did."""
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as why:
        words = str(why).strip().splitlines()
        failure = f"error[worker-lost]: Ray could not run it: {words[0] if words else why!r}"
        notes = "".join(f"\n  = note: {line}" for line in words[-3:])
        return Outcome(failure=failure + notes, attempts=ATTEMPTS)
    return outcome


class _Shipped:
    """Files in the object store, each put there once."""

    def __init__(self, ray: Any, setting: Setting) -> None:
        self._ray = ray
        self._root = Path(setting.folder)
        self._known: dict[Path, Any] = {}
        self._on = setting.transport == "object-store"
        self._shared = sorted(self._root.rglob("*.py")) if self._on else []

    def files(self, job: Job) -> dict[str, Any]:
        """What a job needs, by path below the suite's folder; nothing where nodes share a file system."""
        if not self._on:
            return {}
        return {
            path.relative_to(self._root).as_posix(): self._reference(path)
            for path in [*map(Path, job.files), *self._shared]
            if path.is_relative_to(self._root)
        }

    def _reference(self, path: Path) -> Any:
        if path not in self._known:
            self._known[path] = self._ray.put(path.read_bytes())
        return self._known[path]


def _unpack(job: Job, files: Mapping[str, Any]) -> Job:
    """Write the files below a folder of this process, and let the job work there."""
    import ray

    from onnxproof.system import temporary

    marks = sorted((name, reference.hex()) for name, reference in files.items())
    mark = hashlib.sha256(repr(marks).encode()).hexdigest()
    folder = _folders.get(mark)
    if folder is None:
        folder = _folders[mark] = temporary.Folder()
        for name, reference in files.items():
            place = folder.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(ray.get(reference))
    return replace(job, folder=folder.name)


_folders: dict[str, Any] = {}
"""Of this process of Ray, by what is in them."""
