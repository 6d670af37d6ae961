"""Each subject is exported once: its file, its inputs and its noise are kept in a folder for all later runs."""

import json
import multiprocessing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx

from bench.corpus import Built
from bench.mutants import judge
from bench.mutants.graph import Array
from bench.mutants.samples import as_arrays, feed, from_arrays, samples, truth
from bench.mutants.subjects import NotInstalled, SubjectSource

QUANTIZED = ("DequantizeLinear", "MatMulNBits")
TOO_FAR = 1e-3
"""A sample whose healthy answers are further from the module is no ordinary input (relative rms; not measured at other values)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is known of a subject's healthy file."""

    name: str
    file: str = ""
    verdict: str = ""
    """What onnxproof says of the healthy file; only a faithful one is changed."""
    nodes: int = 0
    noise: tuple[float, ...] = ()
    """Of each output, relative."""
    quantized: bool = False
    skipped: str = ""
    """Why the subject can't be used here."""

    @property
    def usable(self) -> bool:
        """Whether faults may be planted in it."""
        passes = ("faithful", "drift") if self.quantized else ("faithful",)
        return self.verdict in passes and not self.skipped

    @property
    def fault(self) -> float:
        """Times the noise from which a change is a fault; a quantized file's distance to its module is its noise."""
        if self.quantized:
            return judge.QUANTIZED_FAULT
        return judge.FAULT

    @property
    def healthy(self) -> float:
        """Times the noise that a rewrite may move an output and still be healthy."""
        if self.quantized:
            return judge.QUANTIZED_HEALTHY
        return judge.HEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A subject's healthy file with inputs and answers, ready to be changed."""

    health: Health
    model: onnx.ModelProto
    feeds: list[dict[str, Array]]
    answers: list[list[Array]]


def read(name: str, cache: Path) -> Health:
    """What was stored of a subject; nothing is there where its preparation ended the process."""
    record = cache / name / "health.json"
    if not record.exists():
        return Health(name=name, skipped="it could not be prepared")
    stored = json.loads(record.read_text())
    return Health(**{**stored, "noise": tuple(stored["noise"])})


def prepare_apart(source: SubjectSource, cache: Path, budget_s: float) -> Health:
    """What is known of a subject, which is prepared in a process of its own where it was not yet."""
    if not (cache / source.name / "health.json").exists():
        child = multiprocessing.get_context("spawn").Process(
            target=prepare, args=(source, cache, budget_s)
        )
        child.start()
        child.join()
    health = read(source.name, cache)
    if not health.usable:
        print(f"left out: {source.name}: {health.skipped or health.verdict}", flush=True)
    return health


def prepare(source: SubjectSource, cache: Path, budget_s: float) -> Health:
    """Export, judge and store one subject. What is missing today is looked for again at the next run."""
    folder = cache / source.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        health = _examine(source, folder, budget_s)
    except NotInstalled as missing:
        print(missing)
        return Health(name=source.name, skipped=str(missing))
    (folder / "health.json").write_text(json.dumps(asdict(health)))
    return health


def _examine(source: SubjectSource, folder: Path, budget_s: float) -> Health:
    """The steps that are done once: export, draw inputs, measure the noise, ask onnxproof."""
    import onnxproof

    built = source.build(folder)
    assert built.correct is not None
    model = onnx.load(built.correct)
    quantized = any(node.op_type in QUANTIZED for node in model.graph.node)
    feeds, noise = _inputs(built, model, quantized)
    np.savez(folder / "feeds.npz", **as_arrays(feeds))
    proof = onnxproof.verify(
        built.model,
        built.correct,
        built.example_inputs,
        dynamic_shapes=built.dynamic_shapes,
        budget_s=budget_s,
        explain=False,
    )
    return Health(
        name=source.name,
        file=built.correct.name,
        verdict=proof.verdict.value,
        nodes=len(model.graph.node),
        noise=tuple(noise),
        quantized=quantized,
    )


def _inputs(
    built: Built, model: onnx.ModelProto, quantized: bool
) -> tuple[list[dict[str, Array]], list[float]]:
    """The example and the samples that module and file agree on, and the noise between the two."""
    feeds: list[dict[str, Array]] = []
    noise: list[float] = []
    for inputs in [built.example_inputs, *samples(model, built.example_inputs, seed=11)]:
        one = feed(model, inputs)
        try:
            exact = truth(built.model, inputs)
            answers = judge.run(model, [one])
        except Exception:  # other sizes may not fit this model, whatever its runtime says of it
            continue
        apart = judge.noise_of(answers, [exact])
        if not feeds or quantized or max(apart) < TOO_FAR:
            feeds.append(one)
            noise = [max(pair) for pair in zip(apart, noise or apart, strict=True)]
    return feeds, noise


def load(health: Health, cache: Path) -> Prepared:
    """Read a prepared subject."""
    folder = cache / health.name
    model = onnx.load(folder / health.file)
    with np.load(folder / "feeds.npz") as stored:
        feeds = from_arrays(stored)
    return Prepared(health=health, model=model, feeds=feeds, answers=judge.run(model, feeds))
