"""What a repro says: a script that shows the fault, and a text for a bug report."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.repro.submodel import Repro, error_of
from onnxproof.results import Location
from onnxproof.results.proof import Proof
from onnxproof.system.text import code, markdown, prose

Array = np.ndarray[Any, Any]
_SCRIPT = '''"""Exits with 1 while the fault exists, with 0 once it is gone. Needs numpy and onnxruntime alone."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).resolve().parent
LIMITS = @LIMITS@  # the relative error from which on an output is wrong; 0 where it must be exact
LEVEL = onnxruntime.GraphOptimizationLevel.@LEVEL@
KINDS = {"BOOL": "?", "F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
         "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1"}


def plain(text):
    return ascii(text).replace("##[", "##\\\\x5b")  # names may hold anything, and a log obeys some of it


def tensors(name):
    data = (HERE / name).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    head = {n: e for n, e in json.loads(data[8:start]).items() if n != "__metadata__"}
    parts = {n: data[start + e["data_offsets"][0] : start + e["data_offsets"][1]] for n, e in head.items()}
    return {n: np.frombuffer(parts[n], KINDS[e["dtype"]]).reshape(e["shape"]) for n, e in head.items()}


def error(found, truth):
    if found.shape != truth.shape or found.dtype != truth.dtype:
        return np.inf
    if truth.dtype.kind != "f":
        return float((found != truth).mean()) if truth.size else 0.0
    f, t = found.astype("f8"), truth.astype("f8")
    odd = ~(np.isfinite(f) & np.isfinite(t))
    if (odd & ~((f == t) | (np.isnan(f) & np.isnan(t)))).any():
        return np.inf
    f, t = np.where(odd, 0, f), np.where(odd, 0, t)
    scale = np.sqrt((t**2).mean()) if t.size else 0.0
    return float(np.sqrt(((f - t) ** 2).mean()) / (scale or 1.0)) if t.size else 0.0


options = onnxruntime.SessionOptions()
options.graph_optimization_level, options.log_severity_level = LEVEL, 4
given, truths = tensors("inputs.safetensors"), tensors("outputs.safetensors")
try:
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), options, providers=["CPUExecutionProvider"])
    found = session.run(list(truths), {i.name: given[i.name] for i in session.get_inputs()})
except Exception as why:
    sys.exit(f"onnxruntime {onnxruntime.__version__} refuses the model: {plain(str(why))}")
wrong = False
for (name, truth), value in zip(truths.items(), found):
    off = error(np.asarray(value), truth)
    wrong |= off > LIMITS[name]
    print(f"{plain(name)}: {'WRONG' if off > LIMITS[name] else 'right'}, relative error {off:.3g} (limit {LIMITS[name]:g})")
    print("  should be", truth.ravel()[:6], "and is", np.asarray(value).ravel()[:6])
sys.exit(int(wrong))
'''
_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
}


_MOST_NODES = 6
"""Nodes that the report names."""
_MOST_ELEMENTS = 4
"""Elements of a value that the report shows."""


def script(repro: Repro) -> str:
    """The script that runs the sub-model and says whether it is still wrong."""
    level = _LEVELS.get(repro.level, "ORT_ENABLE_ALL")
    return _SCRIPT.replace("@LIMITS@", ascii(repro.limits)).replace("@LEVEL@", level)


def report(
    proof: Proof,
    nodes: Sequence[onnx.NodeProto],
    repro: Repro,
) -> str:
    """A text to paste into a bug report."""
    where = proof.location
    assert where is not None
    lines = [
        f"# {markdown(_headline(where, nodes))} (stage {where.stage.value})",
        "",
        prose(proof.sentence()),
        "",
        f"The smallest part that shows it has {len(nodes)} of the model's nodes: {_node_names(nodes)}.",
        "",
        *_facts(where),
        *_table(repro),
        "",
        *_first_cause(proof),
        "",
        "## See it",
        "",
        "```",
        "pip install numpy onnxruntime",
        "python repro.py    # exits with 1 while the fault exists",
        "```",
        "",
        "## Versions",
        "",
    ]
    versions = [
        f"{name} {version}" for name, version in proof.environment.items() if name != "time"
    ]
    lines += [f"- {markdown(version)}" for version in versions]
    lines += [f"- SHA-256 of the whole model: {proof.hashes.get('candidate', 'unknown')}", ""]
    return "\n".join(lines)


def _headline(where: Location, nodes: Sequence[onnx.NodeProto]) -> str:
    """What is wrong, in a few words."""
    name = "model"
    if len(nodes) == 1:
        name = nodes[0].op_type
    elif where.nodes:
        name = where.nodes[0]
    return f"{name}: wrong values"


def _node_names(nodes: Sequence[onnx.NodeProto]) -> str:
    """The first nodes with their operators."""
    names = ", ".join(
        f"{code(node.name or node.output[0])} ({markdown(node.op_type)})"
        for node in nodes[:_MOST_NODES]
    )
    if len(nodes) > _MOST_NODES:
        return f"{names} and {len(nodes) - _MOST_NODES} more"
    return names


def _facts(where: Location) -> Iterator[str]:
    """What is known of the location."""
    if where.optimizer:
        yield from (f"Optimizer: {code(where.optimizer)}.", "")
    if where.source:
        line = f"{where.source.file}:{where.source.line}"
        yield from (f"Python: {code(line)}: {code(where.source.text.strip())}", "")
    if where.evidence:
        yield from (f"Evidence: {prose(where.evidence)}.", "")


def _table(repro: Repro) -> Iterator[str]:
    """One row for each wrong output."""
    yield "| output | relative error | counts as wrong beyond | should be | is |"
    yield "| --- | --- | --- | --- | --- |"
    for name, truth in repro.truth.items():
        answer = repro.answers.get(name)
        shown = repro.refusal if answer is None else _first_elements(answer)
        error = error_of(answer, truth)
        yield f"| {code(name)} | {error:.3g} | {repro.limits[name]:g} | {_first_elements(truth)} | {markdown(shown)} |"


def _first_cause(proof: Proof) -> Iterator[str]:
    """The most likely cause, and its remedy."""
    for cause in proof.causes[:1]:
        certainty = "proven" if cause.proven else "likely"
        words = prose(f"{cause.code}: {cause.title}. {cause.evidence}")
        yield f"Cause ({certainty}): {words}."
        if cause.fix is not None:
            yield f"Remedy: {prose(cause.fix.what)}."


def _first_elements(array: Array) -> str:
    """Dtype, shape and first elements of an array."""
    elements = array.reshape(-1)[:_MOST_ELEMENTS]
    form = "{:.7g}" if array.dtype.kind == "f" else "{}"
    return f"{array.dtype}{list(array.shape)} " + " ".join(form.format(v) for v in elements)
