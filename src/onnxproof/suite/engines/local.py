"""Processes of this machine, as many as cores and memory allow."""

import os
from collections.abc import Iterator, Sequence

from onnxproof.errors import UsageError
from onnxproof.suite.job import Event, Job, Setting
from onnxproof.suite.pool import Pool


def run(jobs: Sequence[Job], setting: Setting) -> Iterator[Event]:
    """Every job in a process of its own, forked from one of the pool's workers."""
    if os.name != "posix":
        raise UsageError(
            "no-engine",
            "the local engine forks processes, which this system can't",
            help="use Linux or macOS, or `--engine ray` with the address of a cluster",
        )
    pool = Pool(setting)
    try:
        yield from pool.run(jobs)
    finally:
        pool.close()
