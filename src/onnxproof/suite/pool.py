"""A pool of workers on one machine: who runs what and when, by cores and memory, and what happens to a model whose process was lost.

1. The jobs come in the order of the plan, the big ones first. One starts when a worker is free, its cores are, and the memory that
   it is expected to take fits beside what the others hold or are expected to.
2. A model that was killed from outside, or with its worker, is started again, `ATTEMPTS` times in all.
3. Where all together hold more than the limit, the one that is furthest beyond what was expected of it is ended and waits until
   there is room for what it really takes; alone, it is held to the limit itself.
"""

import select
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnxproof.errors import BackendError
from onnxproof.suite.job import Event, Job, Outcome, Setting
from onnxproof.suite.worker_process import Lost, Worker

ATTEMPTS = 3
"""Starts of one model: what kills it three times kills it always."""
_STARTS = 3
"""Starts of workers in a row that fail before the suite gives up."""
_LOOK_EVERY_S = 0.1
"""Seconds between two looks at the workers. Not measured."""
_TELL_EVERY_S = 0.5
_MAKE_ROOM = "room"


class Pool:
    """Workers that live as long as it does; several runs may use them one after the other."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._workers: list[Worker] = []
        self._waiting: deque[tuple[Job, int]] = deque()
        self._failed_starts = 0

    def run(self, jobs: Sequence[Job]) -> Iterator[Event]:
        """Every job to its end."""
        self._waiting.extend((self._limited(job), 1) for job in jobs)
        told = time.monotonic()
        while self._waiting or self._busy:
            self._add_workers()
            yield from self._hand_out()
            ready = {worker.descriptor for worker in self._workers}
            ready = set(select.select(list(ready), [], [], _LOOK_EVERY_S)[0])
            heard = [
                event
                for worker in list(self._workers)
                for event in self._listen(worker, worker.descriptor in ready)
            ]
            # A free worker gets its next job before whoever listens writes down what the last one gave.
            yield from [*heard, *self._hand_out()]
            self._make_room()
            if time.monotonic() - told > _TELL_EVERY_S:
                told = time.monotonic()
                yield Event(kind="waiting")

    def close(self) -> None:
        """End everything."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    @property
    def _busy(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.job is not None]

    def _limited(self, job: Job) -> Job:
        """The job with limits that this machine can keep."""
        whole = self._setting.memory
        memory = min(job.memory or whole, whole)
        expected = min(job.expected_memory, memory)
        cores = min(job.cores, self._setting.jobs)
        return replace(job, memory=memory, expected_memory=expected, cores=cores)

    def _add_workers(self) -> None:
        wanted = min(self._setting.jobs, len(self._waiting) + len(self._busy))
        while len(self._workers) < wanted:
            self._workers.append(Worker(self._setting))

    def _hand_out(self) -> Iterator[Event]:
        """Give every free worker the first job that fits."""
        for worker in self._workers:
            if not worker.free:
                continue
            found = next((pair for pair in self._waiting if self._fits(pair[0])), None)
            if found is None:
                return
            self._waiting.remove(found)
            worker.start(*found)
            yield Event(kind="started", job=found[0])

    def _fits(self, job: Job) -> bool:
        busy = self._busy
        if not busy:
            return True
        cores = sum(worker.job.cores for worker in busy if worker.job is not None)
        if cores + job.cores > self._setting.jobs:
            return False
        taken = sum(self._reserved(worker) for worker in busy)
        return taken + job.expected_memory <= self._setting.memory

    def _reserved(self, worker: Worker) -> int:
        if worker.job is None:
            return 0
        return max(worker.job.expected_memory, worker.held)

    def _listen(self, worker: Worker, ready: bool) -> Iterator[Event]:
        try:
            worker.check()
            outcome = worker.receive() if ready else None
        except Lost as why:
            yield from self._replace(worker, str(why))
            return
        if worker.ready:
            self._failed_starts = 0
        if outcome is not None and outcome.job is not None:
            yield self._decide(outcome.job, outcome)

    def _replace(self, worker: Worker, why: str) -> Iterator[Event]:
        """Let a lost worker go; what it ran is run again."""
        self._workers.remove(worker)
        worker.close()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _STARTS:
                raise BackendError("no-worker", f"no worker can be started: {why}")
        if worker.job is not None:
            failure = f"error[worker-lost]: {why}"
            outcome = Outcome(failure=failure, attempts=worker.attempt, lost=True)
            yield self._decide(worker.job, outcome)

    def _decide(self, job: Job, outcome: Outcome) -> Event:
        """Its end, or another start."""
        if outcome.stopped == _MAKE_ROOM:
            grown = replace(job, expected_memory=min(int(1.25 * outcome.peak), job.memory))
            self._waiting.append((grown, outcome.attempts))
            return Event(kind="lost", job=job, note="waits for memory")
        if outcome.lost and outcome.attempts < ATTEMPTS:
            self._waiting.appendleft((job, outcome.attempts + 1))
            return Event(kind="lost", job=job, note=outcome.failure)
        return Event(kind="ended", job=job, outcome=outcome)

    def _make_room(self) -> None:
        """End one of several models that together hold too much."""
        busy = [worker for worker in self._busy if not worker.stopping]
        if len(busy) < 2 or sum(worker.held for worker in busy) <= self._setting.memory:
            return
        greedy = max(busy, key=lambda w: w.held - (w.job.expected_memory if w.job else 0))
        greedy.stop(_MAKE_ROOM)
