"""Many operators: everything is imported once, and each sample runs in a fork that may crash, hang or eat memory.

The file of rows is appended to by all processes, so that a run which was stopped goes on where it was.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.fuzz import process
from bench.operators import trial
from bench.operators.samples import Sample, draw, full_name, operators
from bench.operators.trial import Row

_NONE = -1
"""The number of the sample in the row of an operator that has none."""


def run(only: str, seed: int, count: int, jobs: int, path: Path) -> list[Row]:
    """Try `count` samples of each operator that the file has no rows of yet; returns all rows of the file."""
    _prepare()
    done = {row.key for row in read(path)}
    infos = list(operators(only))
    children = []
    for job in range(jobs):
        child = os.fork()
        if child == 0:
            _work(infos[job::jobs], seed, count, path, done)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(statuses):
        raise RuntimeError(f"the bench itself failed: exit codes {statuses}")
    names = {full_name(info) for info in infos}
    return [row for row in read(path) if row.operator in names]


def read(path: Path) -> list[Row]:
    """The rows that are there."""
    if not path.is_file():
        return []
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


def _prepare() -> None:
    """Import and fill what every sample needs, by one export; torch keeps to one thread, since others don't survive a fork."""
    import onnxruntime
    import torch

    import onnxproof.api
    import onnxproof.diagnosis.diagnose
    import onnxproof.verification.run  # noqa: F401 - so that no fork has to
    from bench.corpus import export

    torch.set_num_threads(1)
    onnxruntime.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        export(torch.nn.Softplus(), (torch.ones(2, 3),), Path(folder) / "model.onnx")


def _work(
    infos: Iterable[Any], seed: int, count: int, path: Path, done: set[tuple[str, int]]
) -> None:
    """One process with its share of the operators: never returns."""
    code = 1
    try:
        for info in infos:
            if (full_name(info), _NONE) in done:
                continue
            for item in _samples(info, seed, count):
                if item.key in done:
                    continue
                row = item
                if isinstance(item, Sample):
                    row = _apart(item, seed)
                _add(row, path)
        code = 0
    finally:
        os._exit(code)


def _samples(info: Any, seed: int, count: int) -> list[Sample] | list[Row]:
    """The samples of an operator, or a row that says why there are none."""
    try:
        drawn = draw(info, seed, count)
        why = "no small sample with strided tensors"
    except Exception as error:  # torch's own samples: a package that is missing, a dtype
        drawn = []
        why = f"{type(error).__name__}: {error}"
    if drawn:
        return drawn
    return [Row(operator=full_name(info), sample=_NONE, verdict="skipped", why=why[:300])]


def _apart(sample: Sample, seed: int) -> Row:
    """One sample in a fork; its death is a row, too."""
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        result = folder / "row.json"

        def work() -> int:
            result.write_text(trial.run(sample, seed, folder).dumps())
            return 0

        start = time.perf_counter()
        ended = process.call(work, folder)
        seconds = round(ended.seconds, 2)
        if ended.code == 0:
            return Row(**{**json.loads(result.read_text()), "seconds": seconds})
    verdict = "failed"
    if ended.hang:
        verdict = "hang"
    elif ended.signal:
        verdict = "crash"
    why = ended.signal or ended.err.strip()[-300:]
    return Row(
        operator=sample.operator,
        sample=sample.number,
        about=sample.about,
        verdict=verdict,
        seconds=seconds,
        why=f"{why} after {time.perf_counter() - start:.0f} s",
    )


def _add(row: Row, path: Path) -> None:
    """Print a row and append it in one write, so that those of several processes do not mix."""
    print(row.line(), flush=True)
    with path.open("a") as stream:
        stream.write(row.dumps() + "\n")
