"""Many calls, one after the other or in several processes, and a table of what came of them."""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.fuzz import oracle, outcome, process
from bench.fuzz.damage import KINDS
from bench.fuzz.models import Base, bases
from bench.fuzz.samples import ALL_KINDS, SOUND, Call, Workshop, write


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one call."""

    seed: int
    index: int
    kind: str
    base: str
    words: list[str]
    faults: list[str]
    code: int | None
    verdict: str = ""
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    detail: str = ""


def prepare() -> None:
    """Import what the calls need, so that each of them need not; torch keeps to one thread, since others don't survive a fork."""
    import onnxruntime
    import torch

    torch.set_num_threads(1)
    onnxruntime.set_default_logger_severity(4)


def command(words: Sequence[str]) -> int:
    """One command line, in this process."""
    from onnxproof.cli import main

    return main(list(words))


def fuzz(
    seed: int,
    indices: Iterable[int],
    *,
    failures: Path | None = None,
    kinds: Sequence[str] = ALL_KINDS,
) -> list[Result]:
    """Run these calls of a seed; the folders of those that fail are kept."""
    prepare()
    models = bases()
    results = []
    with tempfile.TemporaryDirectory(prefix="onnxproof-fuzz-") as room:
        proof, baseline = (
            ("", "") if set(kinds) <= {*KINDS, SOUND} else _stored(models[0], Path(room) / "stored")
        )
        shop = Workshop(seed=seed, bases=models, proof=proof, baseline=baseline, kinds=kinds)
        for index in indices:
            folder = Path(room) / str(index)
            folder.mkdir()
            result = one(shop.make(index, folder), folder, models)
            results.append(result)
            if result.faults and failures is not None:
                _keep(folder, result, failures / f"{seed}-{index}")
            shutil.rmtree(folder, ignore_errors=True)
    return results


def one(call: Call, folder: Path, models: Sequence[Base]) -> Result:
    """Run one call and look at what came of it."""
    call.save(folder)
    ended = process.call(lambda: command(call.words), folder)
    found, said, detail = outcome.faults(call, ended, folder), outcome.verdict(folder), ""
    if call.compares and said == "faithful":
        detail = differing(call, folder, models)
        found += ["wrong FAITHFUL"] if detail else []
    elif found:
        detail = _tail(ended.err)
    if call.then and not found and said:
        later = process.call(lambda: command(call.then), folder)
        found = [f"read again: {fault}" for fault in outcome.faults(call, later, folder)]
        detail = _tail(later.err) if found else detail
    return Result(
        seed=call.seed,
        index=call.index,
        kind=call.kind,
        base=call.base,
        words=call.words,
        faults=found,
        code=ended.code,
        verdict=said,
        errors=outcome.codes(ended),
        seconds=ended.seconds,
        detail=detail,
    )


def differing(call: Call, folder: Path, models: Sequence[Base]) -> str:
    """The oracle's word on two files of which one was called faithful to the other."""
    base = next(model for model in models if model.name == call.base)

    def ask() -> int:
        reason = oracle.differs(
            folder / "good.onnx",
            folder / "bad.onnx",
            base.example,
            quantized=base.quantized,
            backwards=call.words[1] == "bad.onnx",
        )
        (folder / "oracle.txt").write_text(reason)
        return 0

    inside = folder / "oracle"
    inside.mkdir(exist_ok=True)
    ended = process.call(ask, inside)
    if ended.code != 0:
        return ""  # the runtime itself dies of this file, and can't be asked
    return (folder / "oracle.txt").read_text()


def _stored(base: Base, folder: Path) -> tuple[str, str]:
    """A proof of a file that is wrong, explained, so that many of its fields are filled; and the baseline of one that is right."""
    folder.mkdir()
    write(base, folder, "good")
    (folder / "bad.onnx").write_bytes((folder / "good.onnx").read_bytes().replace(b"Relu", b"Tanh"))
    calls = (
        ["bad.onnx", "--json", "out.json"],
        ["good.onnx", "--no-explain", "--baseline", "lock.json", "--update-baseline"],
    )
    for words in calls:
        process.call(
            lambda words=words: command(["verify", base.subject, *words, "--budget", "0.5"]), folder
        )
    return (folder / "out.json").read_text(), (folder / "lock.json").read_text()


def _keep(folder: Path, result: Result, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, symlinks=True)
    (target / "result.json").write_text(json.dumps(asdict(result), indent=1))


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-6:])[-600:]


def in_processes(
    seed: int, count: int, jobs: int, failures: Path, kinds: Sequence[str] = ALL_KINDS
) -> list[Result]:
    """The same in several processes, each with its share of the indices."""
    if jobs <= 1:
        return fuzz(seed, range(count), failures=failures, kinds=kinds)
    prepare()
    with tempfile.TemporaryDirectory() as room:
        children = []
        for job in range(jobs):
            child = os.fork()
            if child == 0:
                _share(seed, range(job, count, jobs), failures, kinds, Path(room) / f"{job}.json")
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(statuses):
            raise RuntimeError(f"the fuzzer itself failed: exit codes {statuses}")
        found = [
            Result(**entry)
            for job in range(jobs)
            for entry in json.loads((Path(room) / f"{job}.json").read_text())
        ]
    return sorted(found, key=lambda result: result.index)


def _share(
    seed: int, indices: Iterable[int], failures: Path, kinds: Sequence[str], target: Path
) -> None:
    code = 1
    try:
        target.write_text(
            json.dumps(
                [asdict(result) for result in fuzz(seed, indices, failures=failures, kinds=kinds)]
            )
        )
        code = 0
    finally:
        os._exit(code)


def table(results: Sequence[Result]) -> str:
    """One row a kind: calls, how they ended, what is wrong."""
    lines = [f"{'kind':28}{'calls':>6}{'exit 0':>8}{'1':>5}{'2':>5}{'3':>5}{'s':>7}  faults"]
    for kind in sorted({result.kind for result in results}):
        rows = [result for result in results if result.kind == kind]
        ends = Counter(result.code for result in rows)
        bad = Counter(fault for result in rows for fault in result.faults)
        words = ", ".join(f"{count} {fault}" for fault, count in bad.most_common())
        lines.append(
            f"{kind:28}{len(rows):6}{ends[0]:8}{ends[1]:5}{ends[2]:5}{ends[3]:5}{sum(r.seconds for r in rows):7.1f}  {words}"
        )
    return "\n".join(lines)
