"""onnxproof beside what a user would pick instead, over the same faults, correct twins and healthy models, in one run.

    python -m bench.scoreboard                                   # everything; docs/scoreboard.md is written
    python -m bench.scoreboard --cache rows --jobs 2        # resumable: rows that are still valid are read, not measured
    python -m bench.scoreboard --tools usual,torch,polygraphy    # the alternatives alone
    python -m bench.scoreboard --onnxproof-json rows.json        # rows that `python -m bench.runner --json rows.json` just wrote

The alternatives are given every benefit: inputs are paired by name where the file has the names, an input that the
module itself refuses is replaced by a milder one, NaN on both sides is agreement for the usual script. Each call runs in
a process of its own under a time limit. A tool flags a file when it says that the file is wrong, or cannot run it.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bench.runner import Row, child, names

ROOT = Path(__file__).resolve().parent.parent
MEASURE = "1"
"""Raised when a tool is called otherwise than before, so that cached rows are measured again."""
_BATCH = 12
TITLES = {
    "onnxproof": "onnxproof",
    "usual": "the usual script",
    "torch": "torch.onnx's verification",
    "polygraphy": "Polygraphy",
}
HOW = {
    "onnxproof": "`onnxproof.verify` with its defaults",
    "usual": "random inputs of the example's kind at the example's shape and at two other sizes of each dynamic dim; `np.allclose(atol=1e-4, rtol=1e-3)`",
    "torch": "`torch.onnx.verification.verify_onnx_program` on the example inputs; fails at 5e-3 absolute or 0.1 relative, as `export(verify=True)` does",
    "polygraphy": "`Comparator.compare_accuracy` with its defaults (1e-5, 1e-5) on the feed of its own data loader",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What one tool said about one file."""

    tool: str
    case: str
    twin: str
    """faulty, correct, or healthy."""
    outcome: str = "crash"
    """flagged, passed, error (the tool itself failed), timeout or crash."""
    why: str = ""
    seconds: float = 0.0
    first: bool = False
    """The guilty node was the first one named."""
    proven: bool = False
    """The right cause came first and was proven."""

    @property
    def flagged(self) -> bool:
        return self.outcome != "passed"


# What the alternatives need: leaves of the inputs, their pairing, and inputs to try.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A module and a file, with the leaves of the example and how each dim of them is called."""

    model: Any
    path: Path
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any
    leaves: list[tuple[str, Any, dict[int, str]]]
    """Name, tensor, and the names of its dynamic axes."""

    @classmethod
    def of(cls, built: Any, path: Path) -> "Pair":
        keyword = isinstance(built.example_inputs, dict)
        args, kwargs = (
            ((), dict(built.example_inputs)) if keyword else (tuple(built.example_inputs), {})
        )
        bound = inspect.signature(built.model.forward).bind(*args, **kwargs).arguments
        shapes = built.dynamic_shapes
        specs = (
            [shapes.get(n) for n in bound]
            if isinstance(shapes, Mapping)
            else [*(shapes or ()), *[None] * len(bound)]
        )
        leaves = [
            leaf
            for (name, value), spec in zip(bound.items(), specs, strict=False)
            for leaf in _leaves(name, value, spec)
        ]
        return cls(
            model=built.model,
            path=path,
            args=args,
            kwargs=kwargs,
            dynamic_shapes=shapes,
            leaves=leaves,
        )

    def call(self, tensors: Sequence[Any]) -> list[Any]:
        """The module's output tensors for these leaves; the module never sees the caller's own memory."""
        import torch

        with torch.no_grad():
            queue = iter([t.clone() for t in tensors])
            args, kwargs = _refill(self.args, queue), _refill(self.kwargs, queue)
            return list(_outputs(self.model(*args, **kwargs)))

    def feed(
        self, wanted: Sequence[str], tensors: Sequence[Any]
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays for the file's inputs: by name where it has the names, else by position."""
        from onnxproof.reference.torch_session import to_numpy

        by_name = {name: tensor for (name, _, _), tensor in zip(self.leaves, tensors, strict=True)}
        if set(wanted) <= set(by_name):
            return {name: to_numpy(by_name[name]) for name in wanted}
        return {name: to_numpy(tensor) for name, tensor in zip(wanted, tensors, strict=False)}


def _leaves(name: str, value: Any, spec: Any) -> Iterator[tuple[str, Any, dict[int, str]]]:
    """Every tensor inside a value; numbers are part of the module's call and stay as they are."""
    import torch

    if isinstance(value, torch.Tensor):
        axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec or ())
        yield (
            name,
            value,
            {
                axis: getattr(dim, "__name__", str(dim))
                for axis, dim in axes
                if isinstance(dim, str) or hasattr(dim, "__name__")
            },
        )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(
                f"{name}.{key}", item, spec.get(key) if isinstance(spec, Mapping) else None
            )
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _leaves(
                f"{name}.{place}",
                item,
                spec[place] if isinstance(spec, list | tuple) and place < len(spec) else None,
            )


def _refill(value: Any, queue: Iterator[Any]) -> Any:
    """The same containers around the next tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        return next(queue)
    if isinstance(value, dict):
        return {key: _refill(item, queue) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_refill(item, queue) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _outputs(value: Any) -> Iterator[Any]:
    """Every tensor that the module returned, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, bool | int | float):
        yield torch.as_tensor(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _outputs(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _outputs(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _outputs(getattr(value, field.name))


def _random(pair: Pair, sizes: Mapping[str, int], seed: int) -> list[Any]:
    """Inputs of the example's kind: normal with its mean and spread, integers within its range, coins for booleans."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    made = []
    for _, example, axes in pair.leaves:
        shape = [sizes.get(axes.get(axis, ""), size) for axis, size in enumerate(example.shape)]
        if example.dtype == torch.bool:
            made.append(torch.rand(shape, generator=generator) < 0.5)
        elif example.is_floating_point() or example.is_complex():
            values = example.detach().to(
                torch.complex128 if example.is_complex() else torch.float64
            )
            spread, mean = (values.std(), values.mean()) if values.numel() > 1 else (1.0, 0.0)
            made.append(
                (torch.randn(shape, generator=generator, dtype=values.dtype) * spread + mean).to(
                    example.dtype
                )
            )
        else:
            low, high = (int(example.min()), int(example.max())) if example.numel() else (0, 1)
            made.append(torch.randint(low, high + 1, shape, generator=generator).to(example.dtype))
    return made


# The three alternatives. Each returns why it flags the file, or an empty string.


def usual(pair: Pair) -> str:
    """What most people write: random inputs, both models, allclose."""
    from onnxproof.reference.torch_session import to_numpy
    from onnxproof.runtimes import ort

    session = ort.open(pair.path)
    example = {
        name: leaf.shape[axis] for _, leaf, axes in pair.leaves for axis, name in axes.items()
    }
    trials = [{}, *({name: size} for name, n in example.items() for size in (n + 1, 2 * n))]
    for seed, sizes in enumerate(trials):
        tensors = _random(pair, sizes, seed)
        try:
            wanted = pair.call(tensors)
        except Exception:  # the module itself refuses this input: it proves nothing
            if sizes:
                continue
            tensors = [leaf for _, leaf, _ in pair.leaves]
            wanted = pair.call(tensors)
        try:
            found = session.run(pair.feed(session.input_names, tensors))
            for want, got in zip(wanted, found, strict=False):
                if not np.allclose(
                    _plain(to_numpy(want)), _plain(got), atol=1e-4, rtol=1e-3, equal_nan=True
                ):
                    return f"allclose fails at {sizes or 'the shape of the example'}"
        except Exception as why:  # a refusal, or shapes that do not broadcast
            return f"at {sizes}: {type(why).__name__}: {why}"[:200]
    return ""


def _plain(array: Any) -> np.ndarray[Any, Any]:
    """An array that numpy can compare: bfloat16 becomes float32."""
    return (
        np.asarray(array).astype(np.float32)
        if np.asarray(array).dtype.kind == "V" or "bfloat16" in str(np.asarray(array).dtype)
        else np.asarray(array)
    )


def torch_verification(pair: Pair) -> tuple[str, float]:
    """torch.onnx's own measure, with the file in the place of what the exporter had just made; seconds without `torch.export`."""
    import onnx_ir
    import torch
    from torch.onnx import ONNXProgram, verification

    program: Any = None
    try:
        exported = torch.export.export(
            pair.model, pair.args, pair.kwargs, dynamic_shapes=pair.dynamic_shapes
        )
        program = ONNXProgram(onnx_ir.load(pair.path), exported)
        fits = len(program.model.graph.inputs) == len(pair.leaves)
    except Exception:  # a file of the legacy exporter, whose module torch.export does not take: the same rule on the module itself
        fits = False
    start = time.perf_counter()
    try:
        infos = verification.verify_onnx_program(program) if fits else _rule_on_module(pair)
    except (
        Exception
    ) as why:  # torch.onnx.export(verify=True) reports it as a failure of the runtime
        return f"{type(why).__name__}: {why}"[:200] or "raised", time.perf_counter() - start
    bad = [
        f"{i.name}: max abs {i.max_abs_diff:.3g}, max rel {i.max_rel_diff:.3g}"
        for i in infos
        if i.max_abs_diff >= 5e-3 or i.max_rel_diff >= 1e-1
    ]
    return "; ".join(bad)[:200], time.perf_counter() - start


def _rule_on_module(pair: Pair) -> list[Any]:
    """The published comparison, with the module's outputs in the place of the exported program's."""
    import torch
    from torch.onnx.verification import VerificationInfo

    from onnxproof.runtimes import ort

    session = ort.open(pair.path)
    tensors = [leaf for _, leaf, _ in pair.leaves]
    found = session.run(pair.feed(session.input_names, tensors))
    names_ = session.output_names
    return [
        VerificationInfo.from_tensors(n, w, torch.from_numpy(_plain(f)))
        for n, w, f in zip(names_, pair.call(tensors), found, strict=False)
    ]


def polygraphy(pair: Pair) -> str:
    """Its runner for ONNX Runtime on its own feed, against the module's outputs put into its results by hand."""
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.common import TensorMetadata
    from polygraphy.comparator import Comparator, DataLoader, IterationResult, RunResults
    from polygraphy.logger import G_LOGGER

    from onnxproof.reference.torch_session import to_numpy

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    with OnnxrtRunner(SessionFromOnnx(str(pair.path))) as runner:
        inputs = runner.get_input_metadata(use_numpy_dtypes=False)
    shapes, example = (
        TensorMetadata(),
        pair.feed(list(inputs), [leaf for _, leaf, _ in pair.leaves]),
    )
    for name, array in example.items():
        shapes.add(name, array.dtype, array.shape)
    own = DataLoader()
    own.input_metadata = inputs
    feeds: list[Callable[[], Any]] = [
        lambda: own[0],
        lambda: _loaded(DataLoader(input_metadata=shapes)),
        lambda: example,
    ]
    for make in feeds:  # its defaults; then with the shapes of the example, as its warning advises; then the example itself
        try:
            feed = make()
            wanted = pair.call(_back(pair, list(inputs), feed))
        except Exception:  # the module refuses this feed: a user would try the next
            continue
        found = Comparator.run([OnnxrtRunner(SessionFromOnnx(str(pair.path)))], data_loader=[feed])
        (name, iterations) = found[0]
        outputs = list(iterations[0].keys())
        golden = {key: to_numpy(value) for key, value in zip(outputs, wanted, strict=False)}
        both = RunResults(
            [("torch", [IterationResult(golden, runner_name="torch")]), (name, iterations)]
        )
        return "" if bool(Comparator.compare_accuracy(both)) else "compare_accuracy fails"
    raise ValueError("the module refuses every feed")


def _loaded(loader: Any) -> Any:
    loader.input_metadata = loader.user_input_metadata
    return loader[0]


def _back(pair: Pair, wanted: Sequence[str], feed: Mapping[str, Any]) -> list[Any]:
    """The module's leaves from a feed by the file's names; what the file does not take stays as in the example."""
    import torch

    from onnxproof.reference.torch_session import from_numpy

    own = [name for name, _, _ in pair.leaves]
    arrays = (
        dict(feed)
        if set(wanted) <= set(own)
        else dict(zip(own, (feed[name] for name in wanted), strict=False))
    )
    leaves = []
    for name, leaf, _ in pair.leaves:
        value = arrays.get(name)
        if value is None:
            value = leaf
        elif not isinstance(value, torch.Tensor):
            value = from_numpy(np.asarray(value))
        leaves.append(value)
    return leaves


# One process builds a case; every call of a tool is a fork of it.


def judge(tool: str, pair: Pair) -> Mark:
    """Call one alternative and take the time."""
    start = time.perf_counter()
    try:
        if tool == "torch":
            why, seconds = torch_verification(pair)
        else:
            why = {"usual": usual, "polygraphy": polygraphy}[tool](pair)
            seconds = time.perf_counter() - start
    except Exception as wrong:  # the file or the tool; either way the user has no pass
        return Mark(
            tool=tool,
            case="",
            twin="",
            outcome="error",
            why=f"{type(wrong).__name__}: {wrong}"[:300],
            seconds=time.perf_counter() - start,
        )
    return Mark(
        tool=tool,
        case="",
        twin="",
        outcome="flagged" if why else "passed",
        why=why,
        seconds=round(seconds, 3),
    )


def _forked(tool: str, pair: Pair, limit: float) -> Mark:
    """The same in a fork, so that an abort inside a runtime, or a hang, is an outcome."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=lambda: send.send(judge(tool, pair)))
    process.start()
    send.close()
    try:
        return (
            receive.recv()
            if receive.poll(limit)
            else Mark(tool=tool, case="", twin="", outcome="timeout", seconds=limit)
        )
    except EOFError:
        process.join()
        return Mark(
            tool=tool, case="", twin="", outcome="crash", why=f"exit code {process.exitcode}"
        )
    finally:
        process.kill()
        process.join()


def _case(name: str, tools: Sequence[str], limit: float) -> None:
    """Build a case once and print a row for every tool and twin."""
    with tempfile.TemporaryDirectory() as folder:
        built = importlib.import_module(name).build(Path(folder))
        for twin, path in (
            ("faulty", built.faulty),
            ("healthy" if ".clean." in name else "correct", built.correct),
        ):
            for tool in tools if path is not None else ():
                mark = dataclasses.replace(
                    _forked(tool, Pair.of(built, path), limit),
                    case=name.rpartition(".")[2],
                    twin=twin,
                )
                print("MARK " + json.dumps([name, dataclasses.asdict(mark)]), flush=True)


def _child(todo: Sequence[str], tools: Sequence[str], limit: float) -> None:
    """Load and warm what all need, then fork for each case, so that no tool pays for imports and no case for another's end."""
    import onnxruntime  # noqa: F401
    import torch

    from bench.corpus import export

    torch.set_num_threads(1)
    if "polygraphy" in tools:
        import polygraphy.comparator  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        export(torch.nn.Linear(2, 2).eval(), (torch.zeros(1, 2),), Path(folder) / "warm.onnx")
    context = multiprocessing.get_context("fork")
    for name in todo:
        process = context.Process(target=_case, args=(name, tools, limit))
        process.start()
        process.join(limit * (2 * len(tools) + 2))
        process.kill()
        process.join()


def alternatives(
    todo: Sequence[str], tools: Sequence[str], limit: float
) -> Iterator[tuple[str, list[Mark]]]:
    """All rows of some cases, case by case, as they come."""
    command = [
        sys.executable,
        "-m",
        "bench.scoreboard",
        "--child",
        ",".join(todo),
        ",".join(tools),
        "--limit",
        str(limit),
    ]
    rows: dict[str, list[Mark]] = {}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        for line in process.stdout or ():
            if line.startswith("MARK "):
                name, mark = json.loads(line[5:])
                if name not in rows:
                    yield from list(rows.items())[-1:]
                rows.setdefault(name, []).append(Mark(**mark))
    yield from list(rows.items())[-1:]
    for name in todo:
        if name not in rows:
            print(f"{name}: could not be built", file=sys.stderr)


def proof_marks(name: str, limit: float) -> list[Mark]:
    """onnxproof on both files of a case, as bench.runner calls it."""
    rows = [
        child(name, twin, limit)
        for twin in (("correct",) if ".clean." in name else ("faulty", "correct"))
    ]
    return [_of_row(row, name) for row in rows if row is not None]


def _of_row(row: Row, name: str) -> Mark:
    """A fault that lives only in an odd domain is caught by a note, too; any other must be flagged."""
    twin = "healthy" if ".clean." in name else row.twin
    noted = twin == "faulty" and bool(row.domain) and bool(row.notes)
    outcome = (
        "flagged"
        if noted or row.verdict not in ("faithful", "crash", "timeout")
        else {"faithful": "passed"}.get(row.verdict, row.verdict)
    )
    if twin == "faulty" and row.verdict in ("crash", "timeout", "vacuous"):
        outcome = "passed"  # no answer is no catch
    return Mark(
        tool="onnxproof",
        case=row.case,
        twin=twin,
        outcome=outcome,
        why=f"{row.verdict} {','.join(row.notes)} {row.why}".strip(),
        seconds=row.seconds,
        first=row.rank == 1,
        proven=row.proves == "right",
    )


# The cache, the run, the table.


@functools.cache
def _sources(which: str) -> str:
    files = [
        *(ROOT / "bench").glob("*/_*.py"),
        ROOT / "bench/corpus.py",
        ROOT / "bench/architectures.py",
    ]
    if which == "onnxproof":
        files += [
            f
            for f in (ROOT / "src/onnxproof").rglob("*.py")
            if f.parent.name not in ("cli", "report")
        ]
    digest = hashlib.sha256(MEASURE.encode())
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def stamp(name: str, tool: str) -> str:
    """What a row depends on: the case, what it is built from, and the versions; for onnxproof its source, too."""
    versions = [
        f"{p}={metadata.version(p)}"
        for p in ("torch", "onnx", "onnxruntime", *(["polygraphy"] if tool == "polygraphy" else []))
    ]
    case = (ROOT / (name.replace(".", "/") + ".py")).read_bytes()
    return hashlib.sha256(
        b"\0".join(
            [
                case,
                _sources("onnxproof" if tool == "onnxproof" else "").encode(),
                *(v.encode() for v in versions),
            ]
        )
    ).hexdigest()[:24]


class Cache:
    """One JSON file a case and tool, valid while its stamp is."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def read(self, name: str, tool: str) -> list[Mark] | None:
        path = self._path(name, tool)
        if path is None or not path.exists():
            return None
        stored = json.loads(path.read_text())
        return (
            [Mark(**m) for m in stored["marks"]] if stored["stamp"] == stamp(name, tool) else None
        )

    def write(self, name: str, tool: str, marks: Sequence[Mark]) -> None:
        path = self._path(name, tool)
        if path is not None and marks:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                json.dumps(
                    {"stamp": stamp(name, tool), "marks": [dataclasses.asdict(m) for m in marks]},
                    indent=1,
                )
            )

    def _path(self, name: str, tool: str) -> Path | None:
        return self._folder / tool / f"{name}.json" if self._folder else None


def run_all(
    todo: Sequence[str], tools: Sequence[str], cache: Cache, limit: float, jobs: int
) -> list[Mark]:
    """Every tool on every case: from the cache, or measured now, a few cases to a process."""
    marks: list[Mark] = []
    missing: dict[tuple[str, ...], list[str]] = {}
    for name in todo:
        found = {tool: cache.read(name, tool) for tool in tools}
        marks += [mark for those in found.values() for mark in those or ()]
        missing.setdefault(tuple(tool for tool in tools if found[tool] is None), []).append(name)

    def keep(name: str, fresh: Sequence[Mark]) -> None:
        for tool in {mark.tool for mark in fresh}:
            cache.write(name, tool, [mark for mark in fresh if mark.tool == tool])
        for mark in fresh:
            print(
                f"{mark.case:44s} {mark.twin:8s} {mark.tool:11s} {mark.outcome:8s} {mark.seconds:7.2f}s {mark.why[:90]}",
                flush=True,
            )
        marks.extend(fresh)

    def go(item: tuple[tuple[str, ...], Sequence[str]]) -> None:
        lacking, those = item
        others = [tool for tool in lacking if tool != "onnxproof"]
        for name, fresh in alternatives(those, others, limit) if others else ():
            keep(name, fresh)
        for name in those if "onnxproof" in lacking else ():
            keep(name, proof_marks(name, limit))

    batches = [
        (lacking, those[k : k + _BATCH])
        for lacking, those in missing.items()
        if lacking
        for k in range(0, len(those), _BATCH)
    ]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(go, batches))
    return marks


def _share(marks: Sequence[Mark], twin: str, test: Callable[[Mark], bool]) -> str:
    those = [m for m in marks if m.twin == twin]
    return f"{sum(map(test, those))}/{len(those)}" if those else "–"


def table(marks: Sequence[Mark], tools: Sequence[str]) -> str:
    """The one table, as Markdown."""
    heads = [
        "tool",
        "faults caught",
        "false alarms: correct twins",
        "false alarms: healthy models",
        "guilty node named first",
        "cause proven",
        "median s",
    ]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for tool in tools:
        own = [m for m in marks if m.tool == tool]
        speaks = tool == "onnxproof"
        cells = [
            f"{TITLES[tool]} {metadata.version('polygraphy')}"
            if tool == "polygraphy"
            else TITLES[tool]
        ]
        cells += [
            _share(own, "faulty", lambda m: m.flagged),
            _share(own, "correct", lambda m: m.flagged),
            _share(own, "healthy", lambda m: m.flagged),
        ]
        cells += [
            _share(own, "faulty", lambda m: m.first) if speaks else "–",
            _share(own, "faulty", lambda m: m.proven) if speaks else "–",
        ]
        cells += [f"{statistics.median(m.seconds for m in own):.2f}" if own else "–"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(marks: Sequence[Mark], tools: Sequence[str]) -> str:
    """docs/scoreboard.md: the table, how each tool was called, and what it could not run."""
    versions = ", ".join(f"{p} {metadata.version(p)}" for p in ("torch", "onnx", "onnxruntime"))
    lines = [
        "# Scoreboard",
        "",
        f"Made by `python -m bench.scoreboard` over `bench/faults` and `bench/clean`, with {versions}.",
        "",
        table(marks, tools),
        "",
        "How each was called:",
        "",
        *(f"- {TITLES[tool]}: {HOW[tool]}." for tool in tools),
        "",
    ]
    for tool in tools:
        failed = [m for m in marks if m.tool == tool and m.outcome in ("error", "timeout", "crash")]
        if failed:
            lines += [
                f"{TITLES[tool]} gave no answer, which counts as flagged: "
                + ", ".join(f"`{m.case}` ({m.twin}, {m.outcome})" for m in failed)
                + ".",
                "",
            ]
    lines += [
        "Median seconds are of the tool's call alone: imports and building the case are not counted, nor is `torch.export` for torch.onnx's measure.",
        "`–`: the tool does not name nodes or causes here.",
        "",
    ]
    return "\n".join(lines)


def put_into_readme(text: str, readme: Path) -> None:
    """Replace what stands between the markers."""
    begin, end = "<!-- scoreboard -->", "<!-- /scoreboard -->"
    before, found, after = readme.read_text().partition(begin)
    if not found:
        raise SystemExit(f"{readme} has no marker {begin}")
    rest = after.partition(end)[2] if end in after else after
    readme.write_text(f"{before}{begin}\n{text}\n{end}{rest}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure or read, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="comma-separated parts of case names")
    parser.add_argument("--tools", default=",".join(TITLES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--limit", type=float, default=240.0, help="seconds for one call of one tool"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        help="folder of rows as JSON: measured rows are kept there, and valid ones are read",
    )
    parser.add_argument(
        "--onnxproof-json", type=Path, help="rows of `python -m bench.runner --json FILE`"
    )
    parser.add_argument(
        "--readme", action="store_true", help="put the table between the markers of README.md, too"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs/scoreboard.md")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _child(options.child[0].split(","), options.child[1].split(","), options.limit)
        return 0
    todo = [*names("bench.faults", options.only), *names("bench.clean", options.only)]
    tools = [tool for tool in TITLES if tool in options.tools.split(",")]
    run = [tool for tool in tools if tool != "onnxproof" or options.onnxproof_json is None]
    marks = run_all(todo, run, Cache(options.cache), options.limit, options.jobs)
    if "onnxproof" in tools and options.onnxproof_json:
        full = {name.rpartition(".")[2]: name for name in todo}
        marks += [
            _of_row(row, full[row.case])
            for row in (Row(**r) for r in json.loads(options.onnxproof_json.read_text()))
            if row.case in full
        ]
    print("\n" + table(marks, tools))
    if not options.only:
        options.page.write_text(page(marks, tools))
        if options.readme:
            put_into_readme(table(marks, tools), ROOT / "README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
